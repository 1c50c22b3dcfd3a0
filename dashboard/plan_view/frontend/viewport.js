// What part of the plan is seen: steps [x0, x1) and bytes [y0, y1), the same in every panel.

const HEADROOM = 1.09;
const CAPACITY_IN_VIEW = 1.5;
const LEAST_STEPS = 4;
const DEEPEST = 20000;

/** The whole of all panels. A capacity far above the arena is left outside, or it would squash the plan. */
export function limitsOf(panels) {
  const top = Math.max(1, ...panels.map((panel) => Math.max(panel.arena, panel.bound, panel.before ?? 0)));
  const capacities = panels.map((panel) => panel.capacity ?? 0).filter((capacity) => capacity <= top * CAPACITY_IN_VIEW);
  return {
    x0: 0,
    x1: Math.max(1, ...panels.map((panel) => panel.steps)),
    y0: 0,
    y1: Math.max(top, ...capacities) * HEADROOM,
    // What its lines show may be above every arena, and only the strip shows it.
    strip: Math.max(top, ...capacities, ...panels.flatMap(({ lines }) => lines).map(({ bytes }) => mostOf(bytes))) * HEADROOM,
  };
}

export function mostOf(values) {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

/** Scale the view about a point; null stands for everything. */
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

/** The view moved as little as it takes to show a rectangle (its start where it is too large). */
export function revealing(view, limits, box) {
  const shift = (low, high, from, to) => {
    if (from < low || to - from > high - low) return from - low - (high - low) * 0.05;
    return to > high ? to - high + (high - low) * 0.05 : 0;
  };
  const seen = box.x1 > view.x0 && box.x0 < view.x1 && box.y1 > view.y0 && box.y0 < view.y1;
  const whole = box.x0 >= view.x0 && box.x1 <= view.x1 && box.y0 >= view.y0 && box.y1 <= view.y1;
  if (whole || (seen && (box.x1 - box.x0 > view.x1 - view.x0 || box.y1 - box.y0 > view.y1 - view.y0))) return view;
  return panned(view, limits, shift(view.x0, view.x1, box.x0, box.x1), shift(view.y0, view.y1, box.y0, box.y1));
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
