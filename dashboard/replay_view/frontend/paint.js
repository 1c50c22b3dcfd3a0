// The brush: rectangles, hatching, labels, axes and lines.

import { cssColor, mix } from "../../plan_view/frontend/color.js";
import { drawGrid, drawMemoryAxis } from "../../../memplan_engine/plotting/frontend/axes.js";
import { fillProfile } from "../../../memplan_engine/plotting/frontend/strip.js";
import { strokeLevel } from "../../../memplan_engine/plotting/frontend/strokes.js";
import { stepTicks } from "../../../memplan_engine/plotting/frontend/ticks.js";
import { scalesOf } from "../../../memplan_engine/plotting/frontend/viewport.js";
import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";

const HATCH = 7;
const LABEL_LEAST = 26;

/** A rectangle of a buffer: filled, with a hair of ground between neighbours. */
export function fillBox(ctx, box, color) {
  ctx.fillStyle = color;
  const gap = box.w > 3 ? 1 : 0;
  const seam = box.h > 3 ? 1 : 0;
  ctx.fillRect(box.x, box.y + seam, box.w - gap, box.h - seam);
}

export function outline(ctx, box, color, width, dash = []) {
  ctx.strokeStyle = color;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.strokeRect(box.x + width / 2, box.y + width / 2, Math.max(0, box.w - width), Math.max(0, box.h - width));
  ctx.setLineDash([]);
}

export function hatch(ctx, box, color) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.x, box.y, box.w, box.h);
  ctx.clip();
  ctx.strokeStyle = color;
  ctx.lineWidth = 1;
  ctx.beginPath();
  const first = Math.floor((box.x - box.h) / HATCH) * HATCH;
  for (let x = first; x < box.x + box.w; x += HATCH) {
    ctx.moveTo(x, box.y + box.h);
    ctx.lineTo(x + box.h, box.y);
  }
  ctx.stroke();
  ctx.restore();
}

/** `text` cut to `room` pixels; "" where not even a few letters fit. */
export function cutTo(ctx, text, room) {
  if (ctx.measureText(text).width <= room) return text;
  if (room < LABEL_LEAST) return "";
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (ctx.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? `${text.slice(0, low)}…` : "";
}

export function nameBox(ctx, box, name, color, theme, bold = false) {
  if (box.h < 13) return;
  ctx.font = `${bold ? 600 : 400} 12px ${theme.font}`;
  const text = cutTo(ctx, name, box.w - 10);
  if (!text) return;
  ctx.fillStyle = color;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillText(text, box.x + 5, box.y + box.h / 2 + 1);
}

/** A line of text on a plate of ground, so that it reads on anything; kept inside the chart. Gives its box. */
export function plate(ctx, frame, x, y, text, color, theme, bold = false) {
  ctx.font = `${bold ? 600 : 400} 11px ${theme.font}`;
  const shown = cutTo(ctx, text, frame.right - frame.left - 8);
  const width = ctx.measureText(shown).width + 8;
  const at = Math.max(frame.left + 2, Math.min(frame.right - width, x));
  const middle = Math.max(frame.top + 8, Math.min(frame.bottom - 9, y));
  ctx.fillStyle = theme.plate;
  ctx.beginPath();
  ctx.roundRect(at, middle - 8, width, 16, 3);
  ctx.fill();
  ctx.fillStyle = color;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillText(shown, at + 4, middle + 1);
  return { x: at, y: middle - 8, w: width, h: 16 };
}

export function drawGround(ctx, frame, theme) {
  ctx.clearRect(0, 0, frame.width, frame.height);
  drawGrid(ctx, frame, frame, frame.view, theme);
  drawMemoryAxis(ctx, frame, frame, frame.view, theme);
  ctx.fillStyle = theme.axis;
  ctx.fillRect(frame.left, frame.bottom, frame.right - frame.left, 1);
}

/** Steps: between the edges of a step where there is room, for a step is a stretch. */
export function drawSteps(ctx, frame, theme) {
  ctx.font = `400 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.fillStyle = theme.muted;
  const y = frame.height - 9;
  ctx.textAlign = "right";
  ctx.fillText("step", frame.left - 7, y);
  ctx.textAlign = "center";
  const shift = frame.stepWidth > 22 ? 0.5 : 0;
  for (const { value, label } of stepTicks(0, frame.steps - (shift ? 1 : 0), (frame.right - frame.left) / 56)) {
    const x = frame.x(value + shift);
    const half = ctx.measureText(label).width / 2;
    if (x + half <= frame.width) ctx.fillText(label, x, y);
  }
}

/** Levels across the chart, {bytes, text, color, dash, side}: all lines first, then their names; gives the
 * boxes of the names. `side` is "left" or "right". */
export function drawNamedLevels(ctx, frame, levels, theme) {
  for (const { bytes, color, dash } of levels) {
    strokeLevel(ctx, frame.y(bytes), frame, frame.top, frame.bottom, color, dash);
  }
  return levels.map(({ bytes, text, color, side, below }) => {
    ctx.font = `400 11px ${theme.font}`;
    const label = `${text} ${formatBytes(bytes)}`;
    const x = side === "left" ? frame.left + 4 : frame.right - ctx.measureText(label).width - 10;
    return plate(ctx, frame, x, frame.y(bytes) + (below ? 11 : -10), label, color, theme);
  });
}

/** The strip: live bytes of what is placed, and behind them how high it reaches; one value a pixel. */
export function drawStripOf(ctx, frame, pieces, placed, limit, theme) {
  const columns = Math.max(1, Math.round(frame.right - frame.left));
  const live = new Float64Array(columns + 1);
  const high = new Float64Array(columns);
  const scale = columns / Math.max(1, frame.steps);
  for (let piece = 0; piece < pieces.owner.length; piece += 1) {
    const base = placed[pieces.owner[piece]];
    if (base < 0) continue;
    const first = Math.round(pieces.start[piece] * scale);
    const last = Math.max(first + 1, Math.round(pieces.end[piece] * scale));
    live[first] += pieces.high[piece] - pieces.low[piece];
    live[Math.min(columns, last)] -= pieces.high[piece] - pieces.low[piece];
    const top = base + pieces.high[piece];
    for (let x = first; x < last && x < columns; x += 1) if (top > high[x]) high[x] = top;
  }
  paintStrip(ctx, frame, live.slice(0, columns), high, limit, theme);
}

/** `changes` and `high`: by how much live bytes change, and how high they reach, a pixel each. */
function paintStrip(ctx, frame, changes, high, limit, theme) {
  let sum = 0;
  const live = changes.map((change) => sum += change);
  fillProfile(ctx, live, high, frame, scalesOf(frame, frame.view, limit), theme, 1);
  ctx.fillStyle = theme.axis;
  ctx.fillRect(frame.left, frame.stripBottom, frame.right - frame.left, 1);
  ctx.font = `400 11px ${theme.font}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillStyle = theme.muted;
  ctx.fillText("live", frame.left - 7, (frame.stripTop + frame.stripBottom) / 2);
}

/** What the theme of the page gives, and the marks of this picture. */
export function marksOf(theme, dark) {
  return {
    ...theme,
    taken: dark ? "#5fd38a" : "#12803f",
    rejected: dark ? "#e0a06a" : "#a8581a",
    wrong: dark ? "#ff8d8d" : "#c6303a",
    far: 0.8,
    near: 0.5,
    pales: new Map(),
  };
}

/** A colour with a share of the ground in it, as CSS; each is mixed once. */
export function paled(rgb, theme, share) {
  const name = (((rgb[0] << 16) | (rgb[1] << 8) | rgb[2]) + share / 2);
  if (!theme.pales.has(name)) theme.pales.set(name, cssColor(mix(rgb, theme.background, share)));
  return theme.pales.get(name);
}
