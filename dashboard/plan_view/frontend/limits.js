// What part of the plans is seen, the same in every panel.

import { panned, zoomed } from "../../../memplan_engine/plotting/frontend/viewport.js";

const HEADROOM = 1.09;
const CAPACITY_IN_VIEW = 1.5;
const MARGIN = 2.5;

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

/** The view about `box` that is `room` times as wide and as high. */
export function framing(limits, { x0, x1, y0, y1 }, room = MARGIN) {
  const at = { x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
  const factor = (span, most) => Math.min(1, (span * room) / most);
  const view = zoomed(limits, limits, at, factor(x1 - x0, limits.x1), factor(y1 - y0, limits.y1));
  return view && panned(view, limits, at.x - (view.x0 + view.x1) / 2, at.y - (view.y0 + view.y1) / 2);
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
