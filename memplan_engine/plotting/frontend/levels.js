// Arena, lower bound, capacity and peak step: lines through a chart and its strip.

import { strokeLevel, strokeThrough } from "./strokes.js";

/** The horizontal lines of a plan that are to be drawn, top first. */
export function levelsOf(plan, theme) {
  const levels = [{ value: plan.arena, name: plan.arenaName, color: theme.text, dash: [] }];
  if (plan.arena !== plan.bound) levels.push({ value: plan.bound, name: "lower bound", color: theme.bound, dash: [6, 4] });
  if (plan.capacity !== null) {
    levels.push({ value: plan.capacity, name: "capacity", color: theme.capacity, dash: [2, 3] });
  }
  if (plan.before !== undefined) {
    levels.push({ value: plan.before, name: "before", color: theme.before, dash: [8, 3, 2, 3] });
  }
  return levels;
}

export function drawLevels(ctx, plan, parts, scales, theme) {
  for (const { value, name, color, dash } of levelsOf(plan, theme)) {
    strokeLevel(ctx, scales.y(value), parts, parts.top, parts.bottom, color, dash);
    if (name === "capacity") continue;
    strokeLevel(ctx, scales.stripY(value), parts, parts.stripTop - 2, parts.stripBottom, color, dash);
  }
}

/** The vertical line through the peak step; returns its place, or null where it is not in view. */
export function drawPeak(ctx, plan, parts, scales, theme) {
  const x = scales.x(plan.peakStep + 0.5);
  if (x < parts.left || x > parts.right) return null;
  const at = Math.round(x) + 0.5;
  for (const [top, bottom] of [[parts.top, parts.bottom], [parts.stripTop - 4, parts.stripBottom]]) {
    strokeThrough(ctx, [[at, top], [at, bottom]], theme.peak, 1, [4, 3]);
  }
  return x;
}
