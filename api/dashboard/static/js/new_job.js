// The form for a new job: uploads with progress, and a notice when the plan no longer matches the form.
const SOFT = 0.995; // progress shown while the server reads the model

let upload = null;
let planned = null;

const form = () => document.getElementById("new-job");
const part = (name) => document.querySelector(`[data-${name}]`);

function begin(root) {
  const drop = root.querySelector?.("[data-drop]");
  if (drop) drop.hidden = false;
  planned = document.querySelector("input[name=planned]") ? contents() : null;
}

function contents() {
  const data = new FormData(form());
  for (const name of ["planned", "key"]) data.delete(name);
  return new URLSearchParams([...data].filter(([, value]) => typeof value === "string")).toString();
}

function markStale() {
  if (planned === null) return;
  const stale = contents() !== planned;
  part("stale").hidden = !stale;
  part("queue").disabled = stale;
}

function reload(model) {
  const values = { ...Object.fromEntries(new URLSearchParams(contents())), model };
  history.replaceState(null, "", model ? `/new?model=${encodeURIComponent(model)}` : "/new");
  // Not a GET request: the secret of a webhook must not get into a URL.
  return htmx.ajax("POST", "/new/model", { values, target: "#new-job", select: "#new-job", swap: "outerHTML" });
}

function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit ? value.toPrecision(3) : value} ${units[unit]}`;
}

function say(text) { part("upload-text").textContent = text; }

function fail({ detail, hint, code }) {
  const box = part("upload-failure");
  const told = document.createElement("code");
  told.textContent = code;
  box.replaceChildren(`${detail[0].toUpperCase()}${detail.slice(1)}. ${hint ?? ""} `, told);
  box.hidden = false;
}

function end() {
  upload = null;
  part("uploading").hidden = true;
  document.getElementById("upload").disabled = false;
}

function send(file) {
  if (upload) return;
  part("upload-failure").hidden = true;
  const most = Number(document.getElementById("upload").dataset.most);
  if (file.size > most) {
    fail({ detail: `${file.name} has ${size(file.size)}`, hint: `This service accepts up to ${size(most)}.`, code: "blob_too_large" });
    return;
  }
  const format = file.name.endsWith(".json") ? "irmodule" : "onnx";
  const bar = part("uploading").querySelector("progress");
  // Not fetch(), which reports no upload progress.
  upload = new XMLHttpRequest();
  upload.open("PUT", `/v1/models?name=${encodeURIComponent(file.name.slice(0, 200))}&format=${format}`);
  upload.setRequestHeader("Content-Type", "application/octet-stream");
  upload.responseType = "json";
  upload.upload.onprogress = (event) => {
    const share = event.total ? event.loaded / event.total : 0;
    bar.value = share * SOFT;
    say(share < 1 ? `${size(event.loaded)} of ${size(event.total)}` : "Reading the model…");
  };
  upload.onload = () => finish(upload.status, upload.response);
  upload.onerror = () => { end(); fail({ detail: "The upload was interrupted", hint: "Check that the service is running, and try again.", code: "network" }); };
  upload.onabort = () => { end(); document.getElementById("upload").focus(); };
  bar.value = 0;
  say(`${file.name}, ${size(file.size)}`);
  part("uploading").hidden = false;
  document.getElementById("upload").disabled = true;
  upload.send(file);
}

async function finish(status, answer) {
  end();
  if (status >= 300 || !answer) {
    fail({ detail: answer?.detail ?? `The server responded with ${status}`, hint: answer?.hint, code: answer?.code ?? "http_error" });
    return;
  }
  await reload(answer.id);
  (document.getElementById("dimension-0") ?? document.getElementById("model")).focus();
}

document.addEventListener("change", (event) => {
  if (event.target.id === "upload" && event.target.files.length) send(event.target.files[0]);
  else if (event.target.matches("[data-reload]")) reload(event.target.value);
  else if (form()?.contains(event.target)) markStale();
});
document.addEventListener("input", (event) => { if (form()?.contains(event.target)) markStale(); });
document.addEventListener("click", (event) => { if (event.target.matches("[data-upload-cancel]")) upload?.abort(); });

for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault(); // a file dropped outside the zone must not replace the page
    const inside = event.target.closest?.("[data-drop]");
    part("drop").classList.toggle("over", Boolean(inside) && name !== "dragleave" && name !== "drop");
    if (name === "drop" && inside && event.dataTransfer.files.length) send(event.dataTransfer.files[0]);
  });
}

// An invalid request is answered with a page, which is shown like any other.
document.addEventListener("htmx:beforeSwap", (event) => {
  const page = event.detail.xhr.getResponseHeader("Content-Type")?.startsWith("text/html");
  if (event.detail.target.id !== "new-job" || !page || !event.detail.serverResponse.includes('id="new-job"')) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
});
document.addEventListener("htmx:load", (event) => {
  begin(event.detail.elt);
  event.detail.elt.querySelector?.("[data-focus]")?.focus();
});
begin(document);
