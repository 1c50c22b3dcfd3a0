// What follows the pointer and the selection, on a canvas of its own above the chart.

import { drawMarks } from "./marks.js";
import { drawMeasured } from "./measuring.js";

/** Redraw a panel's overlay. `state`: hovered buffer, selected buffer, hovered step (or null, null, -1), marks, what is
 * measured. */
export function drawOverlay(panel, state, theme) {
  const { parts, ratio, overlay } = panel;
  const ctx = overlay.getContext("2d");
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.clearRect(0, 0, overlay.width, overlay.height);
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawMeasured(ctx, panel, state.measured, theme);
  drawMarks(ctx, panel, state.marks, theme);
  if (state.step >= 0 && state.step < panel.data.steps) drawCursor(ctx, panel, state.step, theme);
  ctx.save();
  ctx.beginPath();
  ctx.rect(parts.left - 2, parts.top - 2, parts.plotWidth + 4, parts.stripBottom - parts.top + 8);
  ctx.clip();
  if (state.hovered !== null && state.hovered !== state.selected) outlineBuffer(ctx, panel, state.hovered, theme, 1.25);
  if (state.selected !== null) outlineBuffer(ctx, panel, state.selected, theme, 2.25);
  ctx.restore();
}

function drawCursor(ctx, panel, step, theme) {
  const { parts, scales } = panel;
  const right = parts.left + parts.plotWidth;
  const from = Math.max(parts.left, scales.x(step));
  const to = Math.min(right, scales.x(step + 1));
  const middle = Math.round(scales.x(step + 0.5)) + 0.5;
  for (const [top, bottom] of [[parts.top, parts.bottom], [parts.stripTop - 4, parts.stripBottom]]) {
    if (scales.stepWidth >= 5) {
      ctx.fillStyle = theme.band;
      ctx.fillRect(from, top, to - from, bottom - top);
    }
    if (middle < parts.left || middle > right) continue;
    ctx.fillStyle = theme.text;
    ctx.fillRect(middle - 0.5, top, 1, bottom - top);
  }
}

function outlineBuffer(ctx, panel, buffer, theme, width) {
  const { parts, scales, data } = panel;
  for (const rect of data.rectsOf(buffer)) {
    const left = scales.x(data.start[rect]);
    const right = Math.max(left + 1, scales.x(data.end[rect]));
    const top = scales.y(data.offset[rect] + data.size[rect]);
    const bottom = Math.max(top + 1, scales.y(data.offset[rect]));
    ctx.fillStyle = theme.text;
    ctx.fillRect(left, parts.stripBottom, right - left, width + 1);
    if (bottom < parts.top || top > parts.bottom) continue;
    const [shownTop, shownBottom] = [Math.max(parts.top - 4, top), Math.min(parts.bottom + 4, bottom)];
    for (const [color, thickness] of [[theme.halo, width + 2.5], [theme.text, width]]) {
      ctx.strokeStyle = color;
      ctx.lineWidth = thickness;
      ctx.strokeRect(left - 0.5, shownTop - 0.5, right - left + 0.5, shownBottom - shownTop + 1);
    }
  }
}
