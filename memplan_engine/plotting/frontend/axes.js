// Grid lines and tick labels.

import { byteTicks, stepTicks } from "./ticks.js";

const STEP_ROOM = 64;

export function drawGrid(ctx, parts, scales, view, theme) {
  ctx.fillStyle = theme.grid;
  for (const { value } of memoryTicks(parts, view)) {
    ctx.fillRect(parts.left, Math.round(scales.y(value)), parts.right - parts.left, 1);
  }
}

function memoryTicks(parts, view) {
  return byteTicks(view.y0, view.y1, Math.max(1, Math.floor((parts.bottom - parts.top) / 44)));
}

/** Bytes to the left of the chart. */
export function drawMemoryAxis(ctx, parts, scales, view, theme) {
  beginLabels(ctx, "right", theme);
  for (const { value, label } of memoryTicks(parts, view)) {
    ctx.fillText(label, parts.left - 8, Math.max(7, scales.y(value)));
  }
}

/** Bytes to the left of the strip, which reaches up to `deep`. */
export function drawStripAxis(ctx, parts, scales, deep, theme) {
  beginLabels(ctx, "right", theme);
  const room = parts.stripBottom - parts.stripTop;
  for (const { value, label } of byteTicks(0, deep, Math.max(1, Math.floor(room / 30)))) {
    ctx.fillText(label, parts.left - 8, Math.max(parts.stripTop + 4, scales.stripY(value)));
  }
}

/** The line under a plot and under its strip, with the steps below. */
export function drawTimeAxis(ctx, parts, scales, view, theme) {
  ctx.fillStyle = theme.axis;
  ctx.fillRect(parts.left, parts.bottom, parts.right - parts.left, 1);
  ctx.fillRect(parts.left, parts.stripBottom, parts.right - parts.left, 1);
  beginLabels(ctx, "right", theme);
  const y = parts.stripBottom + 14;
  const room = parts.right - ctx.measureText("steps").width - 8;
  ctx.fillText("steps", parts.right, y);
  ctx.textAlign = "center";
  for (const { value, label } of stepTicks(view.x0, view.x1, Math.floor((parts.right - parts.left) / STEP_ROOM))) {
    const half = ctx.measureText(label).width / 2;
    const x = Math.max(parts.left + half - (parts.left > 20 ? half : 0), scales.x(value));
    if (x + half > room) continue;
    ctx.fillRect(Math.round(scales.x(value)), parts.stripBottom + 1, 1, 4);
    ctx.fillText(label, x, y);
  }
}

function beginLabels(ctx, align, theme) {
  ctx.font = `400 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = align;
  ctx.fillStyle = theme.muted;
}
