// Adding a data set: the file is the body of a request, which no form sends by itself.
const form = document.querySelector("[data-add]");

function say(text) { form.querySelector("[data-said]").textContent = text; }

async function add(file) {
  const most = Number(form.dataset.most);
  if (file.size > most) { say(`${file.name} has ${file.size} bytes; this service accepts ${most}.`); return; }
  const name = file.name.replace(/\.npz$/i, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-._]+/, "") || "data";
  say(`Adding ${file.name}…`);
  const headers = { "Content-Type": "application/octet-stream" };
  const answer = await fetch(`/v1/datasets?name=${encodeURIComponent(name.slice(0, 200))}`, { method: "POST", body: file, headers });
  if (answer.ok) { location.assign("/data"); return; }
  const problem = await answer.json().catch(() => null);
  say(problem ? `Not added: ${problem.detail}. ${problem.hint ?? ""} [${problem.code}]` : `The server responded with ${answer.status}.`);
}

if (form) {
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    try { await add(form.elements.rows.files[0]); } catch { say("The upload was interrupted. Check that the service is running."); }
    button.disabled = false;
  });
}
