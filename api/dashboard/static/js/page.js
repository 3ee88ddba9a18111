// Behaviour of all pages: updated ages, copy buttons, shortcuts, and no polling while the page is hidden.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function age(at, now) {
  const seconds = Math.max(0, (now - at) / 1000);
  const [size, unit] = UNITS.find(([least]) => seconds >= least) ?? UNITS.at(-1);
  return `${Math.floor(seconds / size)} ${unit}`;
}

function refreshAges() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-age]")) {
    const text = age(Date.parse(time.dateTime), now);
    if (time.textContent !== text) time.textContent = text;
  }
}

function offerCopies(root) {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const field = [...document.querySelectorAll("[data-shortcut]")].find((one) => one.dataset.shortcut === event.key);
  if (!field) return;
  event.preventDefault();
  field.focus();
});

// URLs of searches contain only the fields that were filled in.
document.addEventListener("htmx:configRequest", ({ target, detail }) => {
  if (!target.closest('[role="search"]')) return;
  for (const [name, value] of [...detail.formData.entries()]) {
    if (value === "") detail.formData.delete(name);
  }
});

document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && event.target.hasAttribute("data-quiet-when-hidden")) event.preventDefault();
});

// On narrow screens, the link of the current page may be outside of the visible navigation.
const here = document.querySelector(".bar nav [aria-current]");
if (here) here.closest("ul").scrollLeft = here.offsetLeft - (here.closest("ul").clientWidth - here.offsetWidth) / 2;

offerCopies(document);
document.addEventListener("htmx:load", (event) => offerCopies(event.target));
setInterval(refreshAges, 5000);
