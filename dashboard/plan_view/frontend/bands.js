// Stretches of time with a name, such as forward and backward: a ribbon above the chart, a tint behind it.

import { cssColor, parseColor } from "./color.js";

export const RIBBON = 18;
const TINT = 0.08;

/** The bands that can be seen: {label, css, tint, left, right} in pixels. */
function visibleBands(panel, parts, scales, theme) {
  const last = parts.left + parts.plotWidth;
  return panel.bands
    .map(({ label, start, end, color }) => {
      const rgb = parseColor(color[theme.dark ? 1 : 0]);
      const [left, right] = [Math.max(parts.left, scales.x(start)), Math.min(last, scales.x(end))];
      return { label, css: cssColor(rgb), tint: cssColor(rgb, TINT), left, right };
    })
    .filter(({ left, right }) => right > left);
}

/** `draw` under what is drawn already, such as rectangles that came as an image. */
export function drawUnder(ctx, draw) {
  ctx.globalCompositeOperation = "destination-over";
  draw();
  ctx.globalCompositeOperation = "source-over";
}

/** Under what is drawn already: call it after the grid. */
export function drawBands(ctx, panel, parts, scales, theme) {
  if (panel.bands.length === 0) return;
  const bands = visibleBands(panel, parts, scales, theme);
  drawUnder(ctx, () => {
    for (const { tint, left, right } of bands) {
      ctx.fillStyle = tint;
      ctx.fillRect(left, parts.top, right - left, parts.plotHeight);
    }
  });
  ctx.font = `600 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const top = parts.top - RIBBON;
  for (const { label, css, left, right } of bands) {
    ctx.fillStyle = css;
    ctx.fillRect(left, top, Math.max(1, right - left - 1), 3);
    const room = right - left - 6;
    if (ctx.measureText(label).width > room) continue;
    ctx.fillStyle = theme.text;
    ctx.fillText(label, left + 2, top + 10);
  }
}
