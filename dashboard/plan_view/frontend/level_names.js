// The names of arena, lower bound, capacity and peak step, where the plan leaves room.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { levelsOf } from "../../../memplan_engine/plotting/frontend/levels.js";
import { idAt } from "./raster.js";

export const LINE_HEIGHT = 14;

/** The name of the peak step below its line at `x`, no farther left than `from`. */
export function namePeak(ctx, panel, parts, theme, x, from) {
  ctx.font = `500 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.fillStyle = theme.peak;
  const text = `${panel.peakName} step ${panel.peakStep.toLocaleString("en-US")}`;
  const width = ctx.measureText(text).width;
  const place = Math.min(parts.left + parts.plotWidth - width, Math.max(from, x - width / 2));
  if (place >= from) ctx.fillText(text, place, parts.words);
}

/** Name the lines beside themselves: each where it covers the fewest rectangles and no other line or name. */
export function drawLevelNames(ctx, panel, parts, scales, theme, raster, whole, taken = []) {
  ctx.font = `600 11px ${theme.font}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  const levels = levelsOf(panel, theme).map((level) => ({ ...level, y: scales.y(level.value) })).reverse();
  const peak = scales.x(panel.peakStep + 0.5);
  for (const level of levels) {
    if (whole && level.name === "capacity" && level.y < parts.top) taken.push(pointUp(ctx, level, parts, theme));
    if (level.y < parts.top || level.y > parts.bottom) continue;
    for (const text of [`${level.name} ${formatBytes(level.value)}`, level.name]) {
      const width = ctx.measureText(text).width + 8;
      const spot = bestSpot(width, level, { levels, taken, peak, parts, raster });
      if (!spot) continue;
      taken.push(spot);
      paintName(ctx, text, spot, level, theme);
      break;
    }
  }
}

/** A capacity above what is seen: its name at the top right, with an arrow. */
function pointUp(ctx, level, parts, theme) {
  const text = `↑ ${level.name} ${formatBytes(level.value)}`;
  const width = ctx.measureText(text).width + 8;
  const spot = { x: parts.left + parts.plotWidth - width, y: parts.top, width, covers: 1 };
  paintName(ctx, text, spot, level, theme);
  return spot;
}

function bestSpot(width, level, scene) {
  const { parts } = scene;
  const tries = 16;
  let best = null;
  for (const { y, below, away } of sides(level, scene.levels)) {
    if (y < parts.top - 2 || y + LINE_HEIGHT > parts.bottom) continue;
    for (let i = 0; i < tries && width <= parts.plotWidth; i += 1) {
      const x = parts.left + ((parts.plotWidth - width) * i) / (tries - 1);
      const spot = { x, y, width, covers: covered(x, y, width, scene) };
      spot.cost = cost(spot, level, scene) + (below ? 2 : 0) + (away ? 20 : 0) + i * 0.1;
      if (spot.cost < 100 && (!best || spot.cost < best.cost)) best = spot;
    }
  }
  return best;
}

/** Above and below a line, and on each side beyond the other lines that are too near for a name between. */
function sides(level, levels) {
  const found = [];
  for (const below of [false, true]) {
    const beside = (y) => (below ? y + 3 : y - LINE_HEIGHT - 2);
    const outwards = levels.filter((other) => (below ? other.y > level.y : other.y < level.y))
      .sort((a, b) => (below ? a.y - b.y : b.y - a.y));
    let y = beside(level.y);
    found.push({ y, below, away: false });
    for (const other of outwards) if (crosses(other, y)) y = beside(other.y);
    if (y !== beside(level.y)) found.push({ y, below, away: true });
  }
  return found;
}

/** Whether a line goes through a name at `y` or touches it. */
function crosses(other, y) {
  return other.y > y - 2 && other.y < y + LINE_HEIGHT + 2;
}

function cost(spot, level, { levels, taken, peak }) {
  const bottom = spot.y + LINE_HEIGHT;
  const crossed = levels.some((other) => other !== level && crosses(other, spot.y));
  const clash = taken.some((other) => other.x < spot.x + spot.width && other.x + other.width > spot.x
    && other.y < bottom && other.y + LINE_HEIGHT > spot.y);
  const onPeak = peak > spot.x - 4 && peak < spot.x + spot.width + 4;
  // A line through a name is worse than rectangles and the peak behind it, which a plate covers.
  return (clash ? 1000 : 0) + (crossed ? 70 : 0) + (onPeak ? 15 : 0) + spot.covers * 30;
}

/** The share of a box that lies on rectangles. */
export function covered(x, y, width, { parts, raster }) {
  const ratio = raster.width / parts.plotWidth;
  let [hits, points] = [0, 0];
  for (let dx = 0; dx <= width; dx += 5) {
    for (let dy = 1; dy < LINE_HEIGHT; dy += 4) {
      points += 1;
      const [px, py] = [(x + dx - parts.left) * ratio, (y + dy - parts.top) * ratio];
      if (idAt(raster, Math.floor(px), Math.floor(py)) >= 0) hits += 1;
    }
  }
  return hits / points;
}

function paintName(ctx, text, spot, level, theme) {
  if (spot.covers > 0) {
    ctx.fillStyle = theme.plate;
    ctx.fillRect(spot.x, spot.y, spot.width, LINE_HEIGHT);
  }
  ctx.fillStyle = level.color;
  ctx.fillText(text, spot.x + 4, spot.y + LINE_HEIGHT / 2 + 1);
}
