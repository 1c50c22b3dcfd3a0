// Grid lines and tick labels.

import { byteTicks, stepTicks } from "../../../memplan_engine/plotting/frontend/ticks.js";

/** Drawn after the rectangles but under them, since those came as an image. */
export function drawGrid(ctx, parts, scales, view, theme) {
  ctx.globalCompositeOperation = "destination-over";
  ctx.fillStyle = theme.grid;
  for (const { value } of memoryTicks(parts, view)) {
    ctx.fillRect(parts.left, Math.round(scales.y(value)), parts.plotWidth, 1);
  }
  ctx.globalCompositeOperation = "source-over";
}

function memoryTicks(parts, view) {
  return byteTicks(view.y0, view.y1, Math.max(1, Math.floor(parts.plotHeight / 44)));
}

/** Memory to the left (only where the panel has a gutter), time below. */
export function drawAxes(ctx, parts, scales, view, deep, theme) {
  ctx.font = `400 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.fillStyle = theme.muted;
  if (parts.left > 20) {
    ctx.textAlign = "right";
    for (const { value, label } of memoryTicks(parts, view)) {
      ctx.fillText(label, parts.left - 8, Math.max(7, scales.y(value)));
    }
    for (const { value, label } of byteTicks(0, deep, Math.max(1, Math.floor(parts.stripHeight / 30)))) {
      const y = scales.stripY(value);
      if (y > parts.stripTop + 3) ctx.fillText(label, parts.left - 8, y);
    }
  }
  drawTimeAxis(ctx, parts, scales, view, theme);
}

/** The line under a plot and under its strip, with the steps below. */
export function drawTimeAxis(ctx, parts, scales, view, theme) {
  ctx.fillStyle = theme.axis;
  ctx.fillRect(parts.left, parts.bottom, parts.plotWidth, 1);
  ctx.fillRect(parts.left, parts.stripBottom, parts.plotWidth, 1);
  const y = parts.stripBottom + 14;
  const last = parts.left + parts.plotWidth;
  const room = last - ctx.measureText("steps").width - 8;
  ctx.textAlign = "right";
  ctx.fillStyle = theme.muted;
  ctx.fillText("steps", last, y);
  ctx.textAlign = "center";
  for (const { value, label } of stepTicks(view.x0, view.x1, Math.floor(parts.plotWidth / 64))) {
    const half = ctx.measureText(label).width / 2;
    const x = Math.max(parts.left + half - (parts.left > 20 ? half : 0), scales.x(value));
    if (x + half > room) continue;
    ctx.fillRect(Math.round(scales.x(value)), parts.stripBottom + 1, 1, 4);
    ctx.fillText(label, x, y);
  }
}
