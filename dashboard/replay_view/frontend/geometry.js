// Where things are in the picture, in CSS pixels.

import { scalesOf } from "../../../memplan_engine/plotting/frontend/viewport.js";

const RIGHT = 10;
const TOP = 14;
const AXIS = 24;
const STRIP = 56;
const STRIP_GAP = 18;

/** The parts of the picture, and its scales: the chart, which shows all `steps` up to `top` bytes, the strip of
 * live bytes below it, the axes. */
export function frameOf(width, height, steps, top) {
  const left = width < 520 ? 54 : 70;
  const bottom = height - AXIS - STRIP - STRIP_GAP;
  const right = Math.max(left + 40, width - RIGHT);
  const parts = { left, right, top: TOP, bottom, stripTop: bottom + STRIP_GAP, stripBottom: height - AXIS };
  const view = { x0: 0, x1: Math.max(1, steps), y0: 0, y1: Math.max(1, top) };
  return { width, height, steps, limit: top, view, ...parts, ...scalesOf(parts, view, top) };
}

/** Edges on whole pixels, and nothing thinner than one. */
export function boxOf(frame, start, end, low, high) {
  const x = Math.round(frame.x(start));
  const y = Math.round(frame.y(high));
  return { x, y, w: Math.max(1, Math.round(frame.x(end)) - x), h: Math.max(1, Math.round(frame.y(low)) - y) };
}

export function inside(box, point) {
  return point.x >= box.x && point.x < box.x + box.w && point.y >= box.y && point.y < box.y + box.h;
}
