// What every page has: ages that grow, and commands that can be copied.
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

offerCopies(document);
document.addEventListener("htmx:load", (event) => offerCopies(event.target));
setInterval(refreshAges, 5000);
