// Changes one DOM tree to equal another, replacing only what differs, to keep focus, scroll positions and selections.
export function morph(old, next) {
  if (old.isEqualNode(next)) return;
  if (old.nodeName !== next.nodeName) {
    old.replaceWith(next);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = next.nodeValue;
    return;
  }
  morphAttributes(old, next);
  morphChildren(old, next);
}

export function morphChildren(old, next) {
  const [before, after] = [[...old.childNodes], [...next.childNodes]];
  before.slice(after.length).forEach((node) => node.remove());
  after.forEach((node, place) => (before[place] ? morph(before[place], node) : old.append(node)));
}

function morphAttributes(old, next) {
  for (const { name } of [...old.attributes]) {
    // Keep what the reader has opened or closed.
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}
