// Formats numbers as the server does.
const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

export function digits(value) {
  const size = Math.abs(value);
  if (size >= 0.0001 && size < 0.1) return String(Number(value.toPrecision(3)));
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

export function latency(seconds) {
  if (seconds == null) return "–";
  const [factor, unit] = UNITS.find(([least]) => Math.abs(seconds) >= least * 0.9995) ?? UNITS.at(-1);
  return `${digits(seconds / factor)} ${unit}`;
}

export function duration(seconds) {
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const [minutes, hours] = [Math.floor(whole / 60), Math.floor(whole / 3600)];
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
}

export function count(number) {
  return Math.round(number).toLocaleString("en").replaceAll(",", "\u202f");
}

/** Ticks of one axis: all in the unit of the largest, with the decimal places that their step needs. */
export function ticks(values, units = [[1, ""]]) {
  const largest = Math.max(...values.map(Math.abs));
  const [factor, unit] = units.find(([least]) => largest >= least * 0.9995) ?? units.at(-1);
  const step = values.length > 1 ? (values[1] - values[0]) / factor : 1;
  const places = [0, 1, 2, 3, 4, 5].find((place) => isWhole(step * 10 ** place)) ?? 6;
  return values.map((value) => `${(value / factor).toFixed(places)} ${unit}`.trim());
}

export const latencyTicks = (values) => ticks(values, UNITS);

function isWhole(number) {
  return Math.abs(number - Math.round(number)) < 1e-6 * Math.max(1, Math.abs(number));
}
