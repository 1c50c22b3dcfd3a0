// The profile under the chart: live bytes, and the holes above them up to the high-water mark.

import { entryAt } from "./columns.js";
import { formatBytes } from "./format.js";
import { strokeThrough } from "./strokes.js";

const HATCH = 5;

/** Largest live and high-water bytes in each of `width` pixel columns of the view; 0 where nothing lives. */
export function columnMaxima(panel, view, width) {
  const live = new Float64Array(width);
  const high = new Float64Array(width);
  const k = width / (view.x1 - view.x0);
  const sections = panel.profileStart.length;
  for (let j = 0; j < sections; j += 1) {
    const from = panel.profileStart[j];
    const to = j + 1 < sections ? panel.profileStart[j + 1] : panel.view?.profileEnd ?? panel.steps;
    if (to <= view.x0 || from >= view.x1) continue;
    const first = Math.max(0, Math.round((from - view.x0) * k));
    const last = Math.min(width, Math.max(first + 1, Math.round((to - view.x0) * k)));
    for (let column = Math.min(first, width - 1); column < last; column += 1) {
      live[column] = Math.max(live[column], panel.profileLive[j]);
      high[column] = Math.max(high[column], panel.profileHigh[j]);
    }
  }
  return { live, high };
}

export function drawStrip(ctx, panel, parts, scales, view, theme, ratio) {
  const { live, high } = columnMaxima(panel, view, Math.round((parts.right - parts.left) * ratio));
  fillProfile(ctx, live, high, parts, scales, theme, ratio);
}

/** Bytes in each pixel column: what is live, and the holes above. */
export function fillProfile(ctx, live, high, parts, scales, theme, ratio) {
  const holes = outlineBelow(high, parts, scales, ratio);
  ctx.fillStyle = theme.holes;
  ctx.fill(holes);
  hatchHoles(ctx, holes, parts, theme);
  ctx.fillStyle = theme.live;
  ctx.fill(outlineBelow(live, parts, scales, ratio));
}

function outlineBelow(values, parts, scales, ratio) {
  const path = new Path2D();
  path.moveTo(parts.left, parts.stripBottom);
  let from = 0;
  for (let column = 1; column <= values.length; column += 1) {
    if (column < values.length && values[column] === values[from]) continue;
    const y = Math.round(scales.stripY(values[from]) * ratio) / ratio;
    path.lineTo(parts.left + from / ratio, y);
    path.lineTo(parts.left + column / ratio, y);
    from = column;
  }
  path.lineTo(parts.left + values.length / ratio, parts.stripBottom);
  path.closePath();
  return path;
}

/** Holes are hatched as well as coloured, so that they do not rest on colour alone. */
function hatchHoles(ctx, area, parts, theme) {
  ctx.save();
  ctx.clip(area);
  ctx.strokeStyle = theme.hatch;
  ctx.lineWidth = 0.75;
  ctx.beginPath();
  const height = parts.stripBottom - parts.stripTop;
  for (let x = parts.left - height; x < parts.right; x += HATCH) {
    ctx.moveTo(x, parts.stripBottom);
    ctx.lineTo(x + height, parts.stripTop);
  }
  ctx.stroke();
  ctx.restore();
}

/** Lines above what is live: each has its colours, its dash and its label from the engine. */
export function drawStripLines(ctx, panel, parts, scales, view, theme, ratio) {
  for (const line of panel.lines) {
    const curve = { profileStart: line.start, profileLive: line.bytes, profileHigh: line.bytes, steps: panel.steps };
    const { live } = columnMaxima(curve, view, Math.round((parts.right - parts.left) * ratio));
    const points = Array.from(live).flatMap((value, column) => {
      const y = Math.round(scales.stripY(value) * ratio) / ratio + 0.5;
      return [[parts.left + column / ratio, y], [parts.left + (column + 1) / ratio, y]];
    });
    strokeStripLine(ctx, points, line, theme);
  }
}

function strokeStripLine(ctx, points, { colors, dash }, theme) {
  strokeThrough(ctx, points, colors[theme.dark ? 1 : 0], 1.5, dash);
}

/** What the lines of a panel say of a step, in words. */
export function linesAt(panel, step) {
  return panel.lines.flatMap(({ label, exact, start, bytes }) => {
    const value = bytes[entryAt(start, step)];
    return value === undefined ? [] : [`${label}${exact ? "" : " up to"} ${formatBytes(value)}`];
  });
}

/** "live", "fragmentation" and the names of the lines above the strip; returns where the words end. */
export function drawStripKey(ctx, panel, parts, theme) {
  ctx.font = `500 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const y = parts.words ?? (parts.bottom + parts.stripTop - 4) / 2 + 1;
  let x = parts.left;
  for (const [name, color] of [["live", theme.live], ["fragmentation", theme.holes]]) {
    ctx.fillStyle = color;
    ctx.fillRect(x, y - 5, 9, 9);
    if (name === "fragmentation") {
      ctx.strokeStyle = theme.hatch;
      ctx.lineWidth = 1;
      ctx.strokeRect(x + 0.5, y - 4.5, 8, 8);
    }
    ctx.fillStyle = theme.muted;
    ctx.fillText(name, x + 13, y);
    x += 13 + ctx.measureText(name).width + 12;
  }
  for (const line of panel.lines) {
    strokeStripLine(ctx, [[x, y], [x + 14, y]], line, theme);
    ctx.fillText(line.label, x + 18, y);
    x += 18 + ctx.measureText(line.label).width + 12;
  }
  return x;
}
