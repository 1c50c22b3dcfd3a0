// Stretches of time with a name, such as forward and backward or the branches of an op: rows of bars above a chart,
// a tint behind it, and lines at their ends.

const ROW = 18;
const BAR = 3;
const TINT = 0.08;
/** A narrower band has no lines at its ends, pixels. */
const LEAST = 16;

/** The height that `bands` take above a chart. */
export function heightOfBands(bands) {
  return bands.reduce((rows, { row }) => Math.max(rows, row + 1), 0) * ROW;
}

/** The bands that can be seen: {band, color, left, right, top} in pixels. */
function visibleBands(bands, parts, scales, theme) {
  const first = parts.top - heightOfBands(bands);
  return bands
    .map((band) => ({
      band,
      color: band.colours[theme.dark ? 1 : 0],
      left: Math.max(parts.left, scales.x(band.start)),
      right: Math.min(parts.right, scales.x(band.end)),
      top: first + band.row * ROW,
    }))
    .filter(({ left, right }) => right > left);
}

/** The tint: call it after the grid, before what lies on it. */
export function tintBands(ctx, { bands }, parts, scales, theme) {
  ctx.globalAlpha = TINT;
  for (const { color, left, right } of visibleBands(bands, parts, scales, theme)) {
    ctx.fillStyle = color;
    ctx.fillRect(left, parts.top, right - left, parts.bottom - parts.top);
  }
  ctx.globalAlpha = 1;
}

/** Bars and names, and lines through chart and strip: call it after the rectangles and the profile. */
export function drawBands(ctx, { bands }, parts, scales, theme) {
  ctx.font = `600 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const edges = new Map();
  for (const { band, color, left, right, top } of visibleBands(bands, parts, scales, theme)) {
    ctx.fillStyle = color;
    ctx.fillRect(left, top, Math.max(1, right - left - 1), BAR);
    const label = [band.label, band.short].find((words) => ctx.measureText(words).width <= right - left - 6);
    ctx.fillStyle = theme.text;
    if (label) ctx.fillText(label, left + 2, top + 10);
    if (right - left < LEAST) continue;
    for (const x of [left, right].map(Math.round)) edges.set(x, Math.min(top, edges.get(x) ?? top));
  }
  ctx.fillStyle = theme.axis;
  for (const [x, top] of edges) {
    if (x <= parts.left + 1 || x >= parts.right - 1) continue;
    ctx.fillRect(x, top, 1, parts.bottom - top);
    ctx.fillRect(x, parts.stripTop, 1, parts.stripBottom - parts.stripTop);
  }
}

/** The band under a point, or undefined. */
export function bandAt({ bands }, parts, scales, { x, y }) {
  const row = Math.floor((y - parts.top + heightOfBands(bands)) / ROW);
  if (y >= parts.top) return undefined;
  const step = scales.stepAt(x);
  return bands.find((band) => band.row === row && band.start <= step && step < band.end);
}
