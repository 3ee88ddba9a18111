// Numbers as the server writes them.
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

export function count(number) {
  return Math.round(number).toLocaleString("en").replaceAll(",", "\u202f");
}
