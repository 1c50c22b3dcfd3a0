// Numbers as text, and round values for the axes.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const MOST_DECIMALS = 2;

/** 38314967 → "36.54 MiB": two decimals at most, none that are zero. */
function formatBytes(bytes) {
  let unit = 0;
  let value = bytes;
  while (value >= 1023.995 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : Number(value.toFixed(2))} ${UNITS[unit]}`;
}

function formatCount(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** Ticks at multiples of a power of two, about `want` of them, all labels in one binary unit. */
function byteTicks(low, high, want) {
  const gap = Math.max(1, 2 ** Math.ceil(Math.log2((high - low) / Math.max(1, want))));
  let unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, high)) / 10));
  while (unit > 0 && 10 * unit - Math.log2(gap) > MOST_DECIMALS) unit -= 1;
  const digits = { maximumFractionDigits: 10 };
  const text = (value) => `${(value / 1024 ** unit).toLocaleString("en-US", digits)} ${UNITS[unit]}`;
  return multiples(low, high, gap).map((value) => [value, value === 0 ? "0" : text(value)]);
}

/** Ticks at whole steps: multiples of 1, 2 or 5 times a power of ten. */
function stepTicks(low, high, want) {
  const raw = Math.max(1, (high - low) / Math.max(1, want));
  const decade = 10 ** Math.floor(Math.log10(raw));
  const gap = [1, 2, 5, 10].map((factor) => factor * decade).find((one) => one >= raw * 0.999);
  return multiples(low, high, gap).map((value) => [value, formatCount(value)]);
}

function multiples(low, high, gap) {
  const values = [];
  for (let i = Math.ceil(low / gap - 1e-9); i * gap <= high; i += 1) values.push(i * gap || 0);
  return values;
}
