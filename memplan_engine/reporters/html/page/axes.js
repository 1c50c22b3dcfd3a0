// Tick labels and the key between chart and profile.

import { byteTicks, stepTicks } from "../../../plotting/frontend/ticks.js";

function drawAxes(ctx, plan, parts, scales, view, theme) {
  ctx.fillStyle = theme.axis;
  for (const y of [parts.bottom, parts.stripBottom]) ctx.fillRect(parts.left, y, parts.right - parts.left, 1);
  ctx.fillStyle = theme.muted;
  ctx.textAlign = "right";
  for (const { value, label } of memoryTicks(parts, view)) {
    ctx.fillText(label, parts.left - 8, Math.max(parts.top, scales.y(value)));
  }
  for (const { value, label } of byteTicks(0, plan.deep, 3)) {
    if (value > 0) ctx.fillText(label, parts.left - 8, Math.max(parts.stripTop + 4, scales.deep(value)));
  }
  drawTimeAxis(ctx, parts, scales, view, theme);
  drawKey(ctx, plan, parts, theme);
}

function drawTimeAxis(ctx, parts, scales, view, theme) {
  const y = parts.stripBottom + 15;
  ctx.fillText("steps", parts.right, y);
  const room = parts.right - ctx.measureText("steps").width - 8;
  ctx.textAlign = "center";
  for (const { value, label } of stepTicks(view.x0, view.x1, Math.floor((parts.right - parts.left) / 72))) {
    const x = scales.x(value);
    if (x + ctx.measureText(label).width / 2 > room) continue;
    ctx.fillStyle = theme.axis;
    ctx.fillRect(Math.round(x), parts.stripBottom + 1, 1, 4);
    ctx.fillStyle = theme.muted;
    ctx.fillText(label, x, y);
  }
}

function drawKey(ctx, plan, parts, theme) {
  const y = (parts.bottom + parts.stripTop) / 2;
  let x = parts.left;
  ctx.textAlign = "left";
  for (const [name, color] of [["live", theme.live], ["holes", theme.holes]]) {
    ctx.fillStyle = color;
    ctx.fillRect(x, y - 5, 10, 10);
    if (name === "holes") {
      ctx.strokeStyle = theme.hatch;
      ctx.lineWidth = 1;
      ctx.strokeRect(x + 0.5, y - 4.5, 9, 9);
    }
    ctx.fillStyle = theme.muted;
    ctx.fillText(name, x + 14, y + 0.5);
    x += 14 + ctx.measureText(name).width + 12;
  }
  if (!plan.held) return;
  ctx.fillStyle = theme.held;
  ctx.fillRect(x, y - 0.75, 14, 1.5);
  ctx.fillStyle = theme.muted;
  ctx.fillText(plan.held.label, x + 18, y + 0.5);
}
