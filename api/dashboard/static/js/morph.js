// Makes one tree like another, touching only what differs: focus, scrolling and selections stay where they are.
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
    // Whether a reader has opened something is the reader's.
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}
