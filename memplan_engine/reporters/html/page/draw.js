// The chart: rectangles over steps and bytes, the profile below, axes and lines. All on one canvas.

import { ownerOf } from "../../../plotting/frontend/columns.js";
import { inkOn } from "../../../plotting/frontend/contrast.js";
import { drawGrid, drawMemoryAxis, drawStripAxis, drawTimeAxis } from "../../../plotting/frontend/axes.js";
import { drawBands, heightOfBands, tintBands } from "../../../plotting/frontend/bands.js";
import { fitted, measurer } from "../../../plotting/frontend/fitting.js";
import { drawLevels, drawPeak } from "../../../plotting/frontend/levels.js";
import { drawStrip, drawStripKey, drawStripLines } from "../../../plotting/frontend/strip.js";
import { scalesOf } from "../../../plotting/frontend/viewport.js";

const GUTTER = 82;
const FOOT = 30;
const KEY = 26;
const STRIP = 100;
const HEADROOM = 1.03;
const DIMMED = 0.13;
const FONT = "system-ui, Segoe UI, Roboto, Helvetica, Arial, sans-serif";
const LABEL = { width: 36, height: 13, inset: 4 };

function wholeView(plan) {
  return { x0: 0, x1: Math.max(1, plan.steps), y0: 0, y1: Math.max(1, plan.arena * HEADROOM) };
}

/** Where things are on a canvas of width × height CSS pixels. */
function layout(plan, width, height) {
  const stripBottom = height - FOOT;
  const stripTop = stripBottom - STRIP;
  return { left: GUTTER, right: width - 8, top: 8 + heightOfBands(plan.bands), bottom: stripTop - KEY, stripTop, stripBottom };
}

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["background", "text", "muted", "grid", "axis", "live", "holes", "hatch", "bound", "peak"];
  const theme = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  theme.font = FONT;
  theme.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return theme;
}

/** Draw everything; gives how many rectangles are in view. */
function drawChart(canvas, plan, state) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  const parts = layout(plan, width, height);
  const scales = scalesOf(parts, state.view, plan.deep);
  const theme = readTheme();
  ctx.fillStyle = theme.background;
  ctx.fillRect(0, 0, width, height);
  ctx.font = `400 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  drawGrid(ctx, parts, scales, state.view, theme);
  tintBands(ctx, plan, parts, scales, theme);
  drawStrip(ctx, plan, parts, scales, state.view, theme, ratio);
  drawStripLines(ctx, plan, parts, scales, state.view, theme, ratio);
  let drawn = 0;
  clipped(ctx, parts.left, parts.top, parts.right, parts.bottom, () => {
    drawn = drawRects(ctx, plan, parts, scales, state, theme, ratio);
  });
  drawBands(ctx, plan, parts, scales, theme);
  drawLevels(ctx, plan, parts, scales, theme);
  drawPeak(ctx, plan, parts, scales, theme);
  drawMemoryAxis(ctx, parts, scales, state.view, theme);
  drawStripAxis(ctx, parts, scales, plan.deep, theme);
  drawTimeAxis(ctx, parts, scales, state.view, theme);
  drawStripKey(ctx, plan, parts, theme);
  return drawn;
}

function clipped(ctx, left, top, right, bottom, draw) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, right - left, bottom - top);
  ctx.clip();
  draw();
  ctx.restore();
}

/** On whole device pixels, a hairline free at the right and the top where there is room, never less than one. */
function drawRects(ctx, plan, parts, scales, state, theme, ratio) {
  const { palette } = state.colouring;
  const { view } = state;
  const labelled = [];
  const snap = (value) => Math.round(value * ratio) / ratio;
  const pixel = 1 / ratio;
  let drawn = 0;
  for (const rect of state.order) {
    const [start, end, low, high] = [plan.start[rect], plan.end[rect], plan.offset[rect],
      plan.offset[rect] + plan.size[rect]];
    if (end <= view.x0 || start >= view.x1 || high <= view.y0 || low >= view.y1) continue;
    drawn += 1;
    const buffer = ownerOf(plan, rect);
    const faded = state.matches && !state.matches[buffer];
    const left = snap(Math.max(scales.x(start), parts.left - 9));
    const top = snap(Math.max(scales.y(high), parts.top - 9));
    let width = Math.max(pixel, snap(Math.min(scales.x(end), parts.right + 9)) - left);
    let height = Math.max(pixel, snap(Math.min(scales.y(low), parts.bottom + 9)) - top);
    const [fullWidth, fullHeight] = [width, height];
    if (width >= 4) width -= pixel;
    const lift = height >= 3 ? pixel : 0;
    height -= lift;
    const color = palette[state.colouring.index[buffer]][theme.dark ? 1 : 0];
    ctx.fillStyle = color;
    ctx.globalAlpha = faded ? DIMMED : 1;
    ctx.fillRect(left, top + lift, width, height);
    if (!faded && fullWidth >= LABEL.width && fullHeight >= LABEL.height) {
      labelled.push({ buffer, color, left: Math.max(left, parts.left), right: left + width,
        middle: (Math.max(top, parts.top) + Math.min(top + fullHeight, parts.bottom)) / 2 });
    }
  }
  ctx.globalAlpha = 1;
  const measure = measurer(ctx);
  for (const label of labelled) drawLabel(ctx, plan, label, measure);
  outlineSelected(ctx, plan, scales, state, theme);
  return drawn;
}

function drawLabel(ctx, plan, label, measure) {
  const text = fitted(plan.nameOf(label.buffer), label.right - label.left - 2 * LABEL.inset, measure);
  if (!text) return;
  ctx.fillStyle = cssInkOn(label.color);
  ctx.textAlign = "left";
  ctx.fillText(text, label.left + LABEL.inset, label.middle + 0.5);
}

function cssInkOn(color) {
  return `rgb(${inkOn([1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)))})`;
}

function outlineSelected(ctx, plan, scales, state, theme) {
  if (state.selected === null) return;
  for (let rect = 0; rect < plan.count; rect += 1) {
    if (ownerOf(plan, rect) !== state.selected) continue;
    const [x, y] = [scales.x(plan.start[rect]), scales.y(plan.offset[rect] + plan.size[rect])];
    const [width, height] = [scales.x(plan.end[rect]) - x, scales.y(plan.offset[rect]) - y];
    for (const [color, thick] of [[theme.background, 5], [theme.text, 2.5]]) {
      ctx.strokeStyle = color;
      ctx.lineWidth = thick;
      ctx.strokeRect(x, y, Math.max(1, width), Math.max(1, height));
    }
  }
}
