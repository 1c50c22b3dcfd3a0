// What part of a chart is seen, steps [x0, x1) and bytes [y0, y1), and where that is in CSS pixels.

const LEAST_STEPS = 4;
const DEEPEST = 20000;

/** Data → pixels and back, for one chart and one view. `deep` is the top of the strip's own scale, bytes. */
export function scalesOf(parts, view, deep) {
  const stepWidth = (parts.right - parts.left) / (view.x1 - view.x0);
  const byteHeight = (parts.bottom - parts.top) / (view.y1 - view.y0);
  return {
    x: (step) => parts.left + (step - view.x0) * stepWidth,
    y: (bytes) => parts.bottom - (bytes - view.y0) * byteHeight,
    stripY: (bytes) => parts.stripBottom - (bytes / deep) * (parts.stripBottom - parts.stripTop),
    stepAt: (x) => view.x0 + (x - parts.left) / stepWidth,
    bytesAt: (y) => view.y0 + (parts.bottom - y) / byteHeight,
    stepWidth,
    byteHeight,
  };
}

/** Scale the view about a point, closer for factors below 1; null stands for everything. */
export function zoomed(view, limits, at, factorX, factorY) {
  const [x0, x1] = scaled(view.x0, view.x1, at.x, factorX, Math.min(limits.x1, LEAST_STEPS), limits.x1);
  const least = Math.min(limits.y1, Math.max(64, limits.y1 / DEEPEST));
  const [y0, y1] = scaled(view.y0, view.y1, at.y, factorY, least, limits.y1);
  return settled({ x0, x1, y0, y1 }, limits);
}

export function panned(view, limits, dx, dy) {
  const [x0, x1] = kept(view.x0 + dx, view.x1 + dx, limits.x1);
  const [y0, y1] = kept(view.y0 + dy, view.y1 + dy, limits.y1);
  return settled({ x0, x1, y0, y1 }, limits);
}

function scaled(low, high, at, factor, least, most) {
  const span = Math.min(most, Math.max(least, (high - low) * factor));
  const from = at - (at - low) * (span / (high - low));
  return kept(from, from + span, most);
}

function kept(low, high, most) {
  const span = Math.min(high - low, most);
  const from = Math.min(Math.max(0, low), most - span);
  return [from, from + span];
}

function settled(view, limits) {
  const whole = view.x1 - view.x0 >= limits.x1 * 0.999 && view.y1 - view.y0 >= limits.y1 * 0.999;
  return whole ? null : view;
}
