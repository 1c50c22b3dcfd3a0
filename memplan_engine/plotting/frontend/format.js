// Numbers as text. Byte counts are exact until here.

export const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** 38314967 → "36.54 MiB", 54525952 → "52 MiB": two decimals at most, none that are zero. */
export function formatBytes(bytes) {
  let unit = 0;
  let value = bytes;
  while (value >= 1023.995 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : hundredths(value) / 100} ${BYTE_UNITS[unit]}`;
}

/** Ties to even, as Python rounds: 15.625 MiB is one figure wherever it is written. */
function hundredths(value) {
  const below = Math.floor(value * 100);
  return value * 100 - below === 0.5 && below % 2 === 0 ? below : Math.round(value * 100);
}

/** 4194304 → "4,194,304". */
export function formatCount(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** "1 step", "87 steps". */
export function formatSteps(count) {
  return `${formatCount(count)} ${count === 1 ? "step" : "steps"}`;
}
