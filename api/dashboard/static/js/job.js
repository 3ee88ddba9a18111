// The page of one job, updated by the job's events, without requests while nothing happens. A progress event carries the
// data of counters, tasks and plots; the page is fetched again when a stage or the state changes, and now and then.
import { Curves } from "./curves.js";
import { count, digits, duration, latency } from "./format.js";
import { morphChildren } from "./morph.js";

const LEAST_PAUSE = 2500;
const SOON = 250;
const SPREAD = 2000; // ms over which watchers spread their requests, as all get the event of a stage at once
const WHILE_SEARCHING = 30000; // ms between updates of log, failures and shares of time
const LONG_PAUSE = 10000;
const WHILE_QUEUED = 10000; // ms between updates of the place in the queue, of which no event tells
const FINAL = ["succeeded", "failed", "canceled"];

let curves = null;
let due = null;
let refreshed = 0;
let stream = null;
let progress = null; // the last event of that kind
let tasks = new Map(); // the latest event data of each task, by position

const page = () => document.getElementById("job");
const isFinal = () => page().dataset.final === "yes";

function start() {
  curves?.stop();
  curves = null;
  showEndOfLog();
  if (document.querySelector("[data-plot]")) {
    curves = new Curves(page(), page().dataset.curve);
    curves.refresh();
  }
}

function listen() {
  if (isFinal()) return;
  stream = new EventSource(page().dataset.events);
  const on = (kind, act) => stream.addEventListener(kind, (event) => act(JSON.parse(event.data)));
  on("progress", progressed);
  on("note", () => refreshLater(LEAST_PAUSE));
  on("stage", (data) => {
    if (data.status === "working") return doing(data);
    say(data.status === "started" ? `Stage ${data.stage} has started.` : `Stage ${data.stage} has finished.`);
    refreshSoon();
  });
  on("state", (data) => {
    say(`The job is ${data.state}.`);
    if (!FINAL.includes(data.state)) return refreshSoon();
    stream.close();
    clearTimeout(due?.timer);
    return finish();
  });
  stream.addEventListener("error", () => {
    // A lost connection is reopened by the browser. A rejected one is not: reloading the page may show the reason.
    if (stream.readyState === EventSource.CLOSED) setTimeout(startAnew, LONG_PAUSE);
  });
}

function doing(data) {
  set("doing", data.message);
  document.querySelector("[data-doing]")?.removeAttribute("hidden");
  advance(data.share);
  if (document.querySelector("#job-sizes table")) refreshLater(LONG_PAUSE);
}

/** Until the page tells of the end as well: no event will say it again. */
async function finish() {
  await replaceAll();
  if (!isFinal()) setTimeout(finish, LEAST_PAUSE * (1 + Math.random()));
}

async function startAnew() {
  await replaceAll();
  listen();
}

function progressed(data) {
  progress = data;
  for (const task of data.tasks) tasks.set(task.position, task);
  showProgress();
  data.tasks.forEach(highlight);
  curves?.append(data);
  if (curves) refreshLater(WHILE_SEARCHING);
  else refreshSoon();
}

function showProgress() {
  if (progress === null) return;
  set("trials_done", count(progress.trials_done));
  set("trials_planned", count(progress.trials_planned));
  if (progress.estimate !== null) {
    set("estimate", latency(progress.estimate));
    document.querySelector("[data-estimate]")?.removeAttribute("hidden");
  }
  if (progress.seconds_left != null) {
    set("left", duration(progress.seconds_left));
    document.querySelector("[data-left]")?.removeAttribute("hidden");
  }
  advance(progress.share);
  tasks.forEach(showTask);
}

function advance(share) {
  const bar = document.querySelector('[data-of="progress"]');
  if (bar) bar.value = Math.max(bar.value, share ?? 0);
}

const rowOf = (task) => document.querySelector(`tr[data-task="${Number(task.position)}"]`);

function showTask(task) {
  const row = rowOf(task);
  if (!row) return;
  const [trials, best, gflops] = ["Trials", "Best", "GFLOPS"].map((name) => row.querySelector(`[data-label="${name}"]`));
  trials.firstChild.data = count(task.trials_done);
  trials.querySelector("span").textContent = `/${count(task.trials_planned)}`;
  if (task.best_latency === null) return;
  best.textContent = latency(task.best_latency);
  gflops.firstChild.data = digits(task.best_gflops);
}

function highlight(task) {
  const row = rowOf(task);
  if (!row) return;
  row.classList.remove("is-better");
  requestAnimationFrame(() => row.classList.add("is-better"));
}

function set(name, text) {
  for (const part of document.querySelectorAll(`[data-of="${name}"]`)) part.textContent = text;
}

function say(text) {
  document.getElementById("news").textContent = text;
}

function refreshSoon() {
  refreshLater(SOON + Math.random() * SPREAD);
}

function refreshLater(wait) {
  if (document.hidden) return;
  const at = Math.max(Date.now() + wait, refreshed + LEAST_PAUSE);
  if (due !== null && due.at <= at) return;
  clearTimeout(due?.timer);
  due = { at, timer: setTimeout(refresh, at - Date.now()) };
}

async function refresh() {
  settled();
  const begins = !curves && (progress !== null || document.querySelector('[data-of="trials_planned"]'));
  const came = await (begins ? replaceAll() : replaceLiveParts());
  if (!came) refreshLater(LEAST_PAUSE);
  watchQueue();
}

function watchQueue() {
  if (document.querySelector("[data-queued]")) refreshLater(WHILE_QUEUED);
}

async function replaceLiveParts() {
  const fresh = await read({ "HX-Request": "true" });
  // A response to a request from before the end may arrive after it.
  if (fresh && !isFinal()) takeLiveParts(fresh);
  settled();
  return fresh !== null;
}

/** With everything that a job's end or its first trial brings: plots, the comparison, the bundle. */
async function replaceAll() {
  const fresh = await read({});
  if (fresh && !isFinal()) {
    document.title = fresh.title;
    const news = document.getElementById("news").textContent;
    page().replaceWith(fresh.getElementById("job"));
    say(news);
    start();
    showProgress();
    htmx.process(page());
    htmx.trigger(page(), "htmx:load");
  }
  settled();
  return fresh !== null;
}

function settled() {
  refreshed = Date.now();
  due = null;
}

/** Null when it cannot be had now. */
async function read(headers) {
  try {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html", ...headers } });
    if (answer.status === 401) location.reload();
    if (!answer.ok) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return null; // the connection broke
  }
}

function takeLiveParts(fresh) {
  const log = document.querySelector("pre.log");
  const atEnd = log && log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (next) morphChildren(part, next);
  }
  showProgress(); // the last event may be newer than the response
  if (atEnd) showEndOfLog();
}

function showEndOfLog() {
  const log = document.querySelector("pre.log");
  if (log) log.scrollTop = log.scrollHeight;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && stream && stream.readyState !== EventSource.CLOSED) refreshSoon();
});

start();
listen();
watchQueue();
