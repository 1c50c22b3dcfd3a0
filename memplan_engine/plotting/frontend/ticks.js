// Round values for the axes: powers of two of bytes, 1-2-5 for steps.

import { BYTE_UNITS } from "./format.js";

const MAX_DECIMALS = 2;

/** Ticks in [low, high], about `want` of them, with labels in one binary unit. */
export function byteTicks(low, high, want) {
  const gap = Math.max(1, 2 ** Math.ceil(Math.log2((high - low) / Math.max(1, want))));
  const label = byteLabeller(gap, high);
  return ticksBetween(low, high, gap).map((value) => ({ value, label: label(value) }));
}

/** Ticks at whole steps. */
export function stepTicks(low, high, want) {
  const raw = Math.max(1, (high - low) / Math.max(1, want));
  const decade = 10 ** Math.floor(Math.log10(raw));
  const gap = [1, 2, 5, 10].map((factor) => factor * decade).find((candidate) => candidate >= raw * 0.999);
  return ticksBetween(low, high, gap).map((value) => ({ value, label: value.toLocaleString("en-US") }));
}

function ticksBetween(low, high, gap) {
  const values = [];
  for (let i = Math.ceil(low / gap - 1e-9); i * gap <= high; i += 1) values.push(i * gap || 0);
  return values;
}

/** The largest unit in which every multiple of `gap` has few decimals. */
function byteLabeller(gap, high) {
  let unit = Math.min(BYTE_UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, high)) / 10)));
  let decimals = Math.max(0, unit * 10 - Math.log2(gap));
  while (unit > 0 && decimals > MAX_DECIMALS) {
    unit -= 1;
    decimals = Math.max(0, unit * 10 - Math.log2(gap));
  }
  const divisor = 1024 ** unit;
  const shape = { maximumFractionDigits: Math.ceil(decimals) };
  return (value) => (value === 0 ? "0" : `${(value / divisor).toLocaleString("en-US", shape)} ${BYTE_UNITS[unit]}`);
}
