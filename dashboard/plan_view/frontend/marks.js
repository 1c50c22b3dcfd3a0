// The steps that the reader has marked: a line through chart and strip, with its number between them.

import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { liveAt } from "./steps.js";

const HALF = 7;
// From the foot of the strip to the middle of the numbers of its axis, among which a step is one more.
const AXIS = 12;

/** Draw `marks` ({step, second}, null for none) on the overlay of a panel. */
export function drawMarks(ctx, panel, marks, theme) {
  const steps = [marks.step, marks.second].filter((step) => step !== null && step < panel.data.steps);
  let taken = null;
  for (const step of steps) {
    const x = Math.round(panel.scales.x(step + 0.5)) + 0.5;
    if (x < panel.parts.left || x > panel.parts.right) continue;
    const { top, bottom, stripTop, stripBottom } = panel.parts;
    ctx.fillStyle = theme.mark;
    ctx.fillRect(x - 1, top, 2, bottom - top);
    ctx.fillRect(x - 1, stripTop - 4, 2, stripBottom - stripTop + 4);
    taken = nameMark(ctx, panel, x, wordsOf(panel, marks, step), taken, theme);
  }
}

/** "step 74"; of a second one also by how much it differs. */
function wordsOf({ data }, marks, step) {
  const name = `step ${formatCount(step)}`;
  if (step !== marks.second) return name;
  const profile = data.far ?? data;
  const change = liveAt(profile, step) - liveAt(profile, marks.step ?? data.peakStep);
  return `${name}: ${change < 0 ? "−" : "+"}${formatBytes(Math.abs(change))}`;
}

/** The name on a plate, beside one that is there already; returns the place it took. */
function nameMark(ctx, { parts }, x, text, taken, theme) {
  ctx.font = `600 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const width = ctx.measureText(text).width + 10;
  let left = Math.min(parts.right - width, Math.max(parts.left, x - width / 2));
  if (taken && left < taken.right && left + width > taken.left) {
    left = x >= taken.middle ? taken.right + 2 : taken.left - width - 2;
  }
  const middle = parts.stripBottom + AXIS;
  ctx.fillStyle = theme.mark;
  ctx.fillRect(left, middle - HALF - 1, width, 2 * HALF + 2);
  ctx.fillStyle = theme.markInk;
  ctx.fillText(text, left + 5, middle);
  return { left, right: left + width, middle: x };
}
