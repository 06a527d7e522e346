// How are figures written? What is not known is a dash with a reason, never a zero.

const count = new Intl.NumberFormat("en");

/** @param {number | null | undefined} value */
export const number = (value) => (value === null || value === undefined ? "–" : count.format(value));

/** A number of things. @param {number} value @param {string} one @param {string} [many] */
export const some = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** @param {string | number | null | undefined} cost In dollars. */
export function dollars(cost) {
  if (cost === null || cost === undefined) return "unknown";
  const value = Number(cost);
  if (value === 0) return "$0";
  return value >= 0.01 ? `$${value.toFixed(2)}` : `$${value.toPrecision(2)}`;
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${(ms / 60_000).toFixed(1)} min`;
}

/** @param {number} seconds Since the epoch. */
export const clock = (seconds) => {
  const date = new Date(seconds * 1000);
  const day = date.toDateString() === new Date().toDateString() ? "" : `${date.toLocaleDateString("sv")} `;
  return day + date.toLocaleTimeString("sv");
};

/** A mark of an axis of time: the day at midnight, else hours and minutes. */
export const tick = (seconds) => {
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString("sv").slice(0, 5);
  return time === "00:00" ? date.toLocaleDateString("sv").slice(5) : time;
};

/** @param {number[]} values @param {number} share From 0 to 1. */
export function quantile(values, share) {
  if (!values.length) return null;
  const sorted = [...values].sort((one, two) => one - two);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
