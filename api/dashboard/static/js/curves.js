// The plots of a search, drawn from curve.json and continued by the job's progress events.
import { digits, latency, latencyTicks, ticks, count } from "./format.js";

const TRIALS = 0;
const SECONDS = 1;
const VALUE = 2;
const HEIGHT = 260;
const STEPS = [1, 2, 5].flatMap((digit) => [0, 1, 2, 3, 4, 5].map((power) => digit * 10 ** power)).sort((a, b) => a - b);

function colour(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function faded(rgb, alpha) {
  return rgb.replace("rgb(", "rgba(").replace(")", `, ${alpha})`);
}

export class Curves {
  constructor(root, address) {
    this.address = address;
    this.axis = TRIALS;
    this.told = null;
    this.asking = false;
    this.waiting = []; // events received before the curve
    this.charts = [];
    this.drawn = "";
    this.ending = new AbortController();
    this.boxes = {
      estimate: root.querySelector('[data-plot="estimate"]'),
      tasks: root.querySelector('[data-plot="tasks"]'),
    };
    this.highlight = root.querySelector("[data-highlight]");
    this.watchControls(root);
  }

  watchControls(root) {
    const axis = root.querySelector("[data-axis]");
    axis.hidden = false;
    axis.addEventListener("change", (event) => {
      this.axis = event.target.value === "seconds" ? SECONDS : TRIALS;
      this.draw();
    });
    this.highlight.addEventListener("change", () => this.draw());
    root.querySelectorAll("[data-needs-script]").forEach((part) => { part.hidden = false; });
    const { signal } = this.ending;
    document.addEventListener("themechange", () => this.draw(), { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(), { signal });
    const sizes = new ResizeObserver(() => this.resize());
    sizes.observe(this.boxes.tasks);
    signal.addEventListener("abort", () => sizes.disconnect());
  }

  /** For a page that has others now. */
  stop() {
    this.ending.abort();
    this.charts.forEach((chart) => chart.destroy());
    this.charts = [];
  }

  /** Ask for the whole curve. */
  async refresh() {
    if (this.asking) return;
    this.asking = true;
    const told = await fetch(this.address, { headers: { Accept: "application/json" } })
      .then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);
    this.asking = false;
    if (told === null) return; // until the next event
    this.told = told;
    this.waiting.splice(0).forEach((event) => this.take(event));
    this.draw();
  }

  /** Continue the lines with what a progress event tells. */
  append(event) {
    // Without a curve, or if it changes from the start, fetch the whole curve.
    if (this.told === null || this.told.basis !== event.basis) {
      this.waiting.push(event);
      this.refresh();
      return;
    }
    this.take(event);
    if (this.drawn === this.shape()) this.charts.forEach((chart) => chart.setData(chart.table()));
    else this.draw();
  }

  /** Twice is as good as once: a curve may tell already what an event tells again. */
  take(event) {
    const { told } = this;
    if (told.basis !== event.basis || event.trials_done < told.trials) return;
    const seconds = told.began_at ? Math.max(0, (Date.parse(event.at) - Date.parse(told.began_at)) / 1000) : 0;
    const place = [event.trials_done, seconds];
    if (event.estimate !== null && event.trials_done > told.trials) {
      // A level stretch needs only its ends.
      if (told.estimate.slice(-2).filter((point) => point[VALUE] === event.estimate).length === 2) told.estimate.pop();
      told.estimate.push([...place, event.estimate]);
    }
    told.trials = event.trials_done;
    for (const { position, best_gflops: best } of event.tasks) {
      const points = (told.tasks[position] ??= []);
      if (best !== null && !(points.at(-1)?.[VALUE] >= best)) points.push([...place, best]);
      if (!points.length) delete told.tasks[position];
    }
  }

  /** Which lines there are. */
  shape() {
    return `${this.told.estimate.length > 0} ${Object.keys(this.told.tasks)}`;
  }

  draw() {
    if (this.told === null || !this.told.trials || this.ending.signal.aborted) return;
    this.charts.forEach((chart) => chart.destroy());
    for (const box of Object.values(this.boxes)) box.replaceChildren();
    this.charts = [this.drawEstimate(), this.drawTasks()].filter(Boolean);
    this.drawn = this.shape();
  }

  drawEstimate() {
    const { estimate, untuned, reference, tuned, is_final: isFinal } = this.told;
    this.boxes.estimate.closest("figure").hidden = !estimate.length;
    if (!estimate.length) return null;
    const sum = {
      label: "Sum over operators, estimated", stroke: colour("--series-1"), width: 2,
      spanGaps: true, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), value: (_, value) => latency(value),
    };
    const levels = [];
    /** A measured time: a point where it was measured, and a line to read others against. */
    const level = (name, seconds, stroke, look) => levels.push({
      seconds,
      series: {
        label: `${name}, measured${isFinal ? "" : " when the job began"}`,
        stroke, width: 1, spanGaps: true, value: () => latency(seconds), ...look,
        points: { show: true, size: 9, fill: stroke, filter: (plot) => [isFinal ? plot.data[0].length - 1 : 0] },
      },
    });
    if (reference) level(this.told.reference_name, reference, colour("--series-2"), { dash: [2, 3] });
    if (untuned) level("Untuned", untuned, colour("--muted"), { dash: [6, 4] });
    if (tuned) level("Tuned", tuned, colour("--series-1"), { dash: [1, 5] });
    const table = () => this.fromZero([
      [this.told.estimate.map((point) => point[this.axis]), this.told.estimate.map((point) => point[VALUE])],
      ...levels.map(({ seconds }) => (this.end() ? [[0, this.end()], [seconds, seconds]] : [[0], [seconds]])),
    ]);
    const series = [sum, ...levels.map((one) => one.series)];
    return this.chart(this.options(this.boxes.estimate, series, "Time of one run", latencyTicks), table, this.boxes.estimate);
  }

  drawTasks() {
    const box = this.boxes.tasks;
    const positions = Object.keys(this.told.tasks);
    box.closest("figure").hidden = !positions.length;
    if (!positions.length) return null;
    const table = () => this.fromZero(positions.map((position) => {
      const points = upTo(this.told.tasks[position], this.end(), this.axis);
      return [points.map((point) => point[this.axis]), points.map((point) => point[VALUE])];
    }));
    const chosen = this.highlight.value;
    const series = positions.map((position) => this.taskLine(position, chosen));
    const options = this.options(box, series, "GFLOPS", (values) => ticks(values));
    options.legend = { show: false };
    options.cursor.focus = { prox: 30 };
    options.focus = { alpha: 0.2 };
    const readout = document.createElement("p");
    readout.className = "muted small readout";
    readout.textContent = chosen ? this.told.names[chosen] : "Point at a line to see its task.";
    options.hooks = { setSeries: [(plot, place) => this.tell(plot, place, positions, readout)] };
    const chart = this.chart(options, table, box);
    box.append(readout);
    return chart;
  }

  /** ``table`` makes its data anew, for when there is more. */
  chart(options, table, box) {
    return Object.assign(new uPlot(options, table(), box), { table });
  }

  /** Where the search is now, against the axis. */
  end() {
    const lines = [this.told.estimate, ...Object.values(this.told.tasks)];
    return Math.max(...lines.map((points) => points.at(-1)?.[this.axis] ?? 0));
  }

  /** One table of all, from zero to the end: so both plots have the same axis. */
  fromZero(tables) {
    return uPlot.join([...tables, [[0, this.end()], [null, null]]]).slice(0, -1);
  }

  taskLine(position, chosen) {
    const accent = colour("--series-1");
    const isChosen = position === chosen;
    const stroke = !chosen ? faded(accent, 0.75) : isChosen ? accent : faded(colour("--muted"), 0.3);
    return {
      label: this.told.names[position] ?? position,
      stroke,
      width: isChosen ? 2.5 : 1.25,
      spanGaps: true,
      points: { show: false },
      paths: uPlot.paths.stepped({ align: 1 }),
    };
  }

  tell(plot, place, positions, readout) {
    if (place == null || place < 1) return;
    const points = this.told.tasks[positions[place - 1]];
    readout.textContent = `${this.told.names[positions[place - 1]]}: ${digits(points.at(-1)[VALUE])} GFLOPS`;
  }

  options(box, series, title, values) {
    const ink = colour("--muted");
    const line = { stroke: faded(ink, 0.18), width: 1 };
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: ink, grid: line, ticks: line, font, labelFont: font, labelSize: 18, labelGap: 2 };
    const isTrials = this.axis === TRIALS;
    const x = { label: isTrials ? "Trials" : "Seconds of tuning", value: (_, value) => (value == null ? "–" : isTrials ? count(value) : `${digits(value)} s`) };
    return {
      width: box.clientWidth,
      height: HEIGHT,
      scales: { x: { time: false } },
      cursor: { y: false, points: { size: 7 } },
      axes: [
        { ...axis, label: x.label, size: 32, incrs: STEPS, values: (_, found) => found.map(count) },
        { ...axis, label: title, size: 62, values: (_, found) => values(found) },
      ],
      series: [x, ...series],
    };
  }

  resize() {
    const width = this.boxes.tasks.clientWidth;
    for (const chart of this.charts) {
      if (width && chart.width !== width) chart.setSize({ width, height: HEIGHT });
    }
  }
}

/** The points, drawn on to where the search is now. */
function upTo(points, end, axis) {
  const last = points.at(-1);
  return last[axis] < end ? [...points, last.with(axis, end)] : points;
}
