// The chart: rectangles over steps and bytes, the profile below, axes and lines. All on one canvas.

import { ownerOf } from "../../../plotting/frontend/columns.js";
import { inkOn } from "../../../plotting/frontend/contrast.js";
import { byteTicks } from "../../../plotting/frontend/ticks.js";

const GUTTER = 82;
const FOOT = 30;
const KEY = 26;
const STRIP = 100;
const HEADROOM = 1.03;
const HATCH = 5;
const DIMMED = 0.13;
const FONT = "11px system-ui, Segoe UI, Roboto, Helvetica, Arial, sans-serif";
const LABEL = { width: 36, height: 13, inset: 4 };

function wholeView(plan) {
  return { x0: 0, x1: Math.max(1, plan.steps), y0: 0, y1: Math.max(1, plan.arena * HEADROOM) };
}

/** Where things are on a canvas of width × height CSS pixels. */
function layout(width, height) {
  const stripBottom = height - FOOT;
  const stripTop = stripBottom - STRIP;
  return { left: GUTTER, right: width - 8, top: 8, bottom: stripTop - KEY, stripTop, stripBottom };
}

/** Steps and bytes ↔ pixels. */
function scalesOf(parts, view, plan) {
  const kx = (parts.right - parts.left) / (view.x1 - view.x0);
  const ky = (parts.bottom - parts.top) / (view.y1 - view.y0);
  const ks = (parts.stripBottom - parts.stripTop) / plan.deep;
  return {
    x: (step) => parts.left + (step - view.x0) * kx,
    y: (bytes) => parts.bottom - (bytes - view.y0) * ky,
    deep: (bytes) => parts.stripBottom - bytes * ks,
    step: (x) => view.x0 + (x - parts.left) / kx,
    bytes: (y) => view.y0 + (parts.bottom - y) / ky,
    kx,
    ky,
  };
}

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["background", "text", "muted", "grid", "axis", "live", "holes", "hatch", "bound", "peak", "held"];
  const theme = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
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
  const parts = layout(width, height);
  const scales = scalesOf(parts, state.view, plan);
  const theme = readTheme();
  ctx.fillStyle = theme.background;
  ctx.fillRect(0, 0, width, height);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  drawGrid(ctx, parts, scales, state.view, theme);
  clipped(ctx, parts.left, parts.stripTop - 1, parts.right, parts.stripBottom, () => {
    drawProfile(ctx, plan, parts, scales, state.view, theme);
  });
  let drawn = 0;
  clipped(ctx, parts.left, parts.top, parts.right, parts.bottom, () => {
    drawn = drawRects(ctx, plan, parts, scales, state, theme, ratio);
  });
  drawLines(ctx, plan, parts, scales, theme);
  drawAxes(ctx, plan, parts, scales, state.view, theme);
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

function memoryTicks(parts, view) {
  return byteTicks(view.y0, view.y1, Math.max(1, Math.floor((parts.bottom - parts.top) / 44)));
}

function drawGrid(ctx, parts, scales, view, theme) {
  ctx.fillStyle = theme.grid;
  for (const { value } of memoryTicks(parts, view)) {
    ctx.fillRect(parts.left, Math.round(scales.y(value)), parts.right - parts.left, 1);
  }
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
  for (const label of labelled) drawLabel(ctx, plan, label);
  outlineSelected(ctx, plan, scales, state, theme);
  return drawn;
}

function drawLabel(ctx, plan, label) {
  const room = label.right - label.left - 2 * LABEL.inset;
  const name = plan.nameOf(label.buffer);
  const fits = Math.floor(room / 5);
  if (fits < 4) return;
  let text = name.length > fits * 2 ? name.slice(0, fits * 2) : name;
  while (text.length > 3 && ctx.measureText(text === name ? text : `${text}…`).width > room) {
    text = text.slice(0, -1);
  }
  if (text !== name) text = `${text}…`;
  if (ctx.measureText(text).width > room || (text !== name && text.length < 7)) return;
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

/** Live bytes, and the holes above them, hatched so that they do not rest on colour alone. */
function drawProfile(ctx, plan, parts, scales, view, theme) {
  const holes = outline(plan, plan.profileHigh, parts, scales, view);
  ctx.fillStyle = theme.holes;
  ctx.fill(holes);
  ctx.save();
  ctx.clip(holes);
  ctx.strokeStyle = theme.hatch;
  ctx.lineWidth = 0.75;
  ctx.beginPath();
  const deep = parts.stripBottom - parts.stripTop;
  for (let x = parts.left - deep; x < parts.right; x += HATCH) {
    ctx.moveTo(x, parts.stripBottom);
    ctx.lineTo(x + deep, parts.stripTop);
  }
  ctx.stroke();
  ctx.restore();
  ctx.fillStyle = theme.live;
  ctx.fill(outline(plan, plan.profileLive, parts, scales, view));
  if (!plan.held) return;
  const held = new Path2D();
  addStairs(held, plan.held.start, plan.held.bytes, plan.steps, parts, scales, view);
  ctx.strokeStyle = theme.held;
  ctx.lineWidth = 2;
  ctx.stroke(held);
}

/** What lies below a value a section. */
function outline(plan, values, parts, scales, view) {
  const path = new Path2D();
  path.moveTo(parts.left, parts.stripBottom);
  addStairs(path, plan.profileStart, values, plan.steps, parts, scales, view);
  path.lineTo(parts.right, parts.stripBottom);
  path.closePath();
  return path;
}

/** A value from each start to the next; where several share a pixel, the largest of them counts. */
function addStairs(path, starts, values, steps, parts, scales, view) {
  const sections = starts.length;
  let from = 0;
  while (from < sections) {
    let to = from + 1;
    let most = values[from];
    const left = scales.x(starts[from]);
    while (to < sections && scales.x(starts[to]) < left + 0.5) {
      most = Math.max(most, values[to]);
      to += 1;
    }
    const end = to < sections ? starts[to] : steps;
    if (end > view.x0 && starts[from] < view.x1) {
      path.lineTo(Math.max(left, parts.left), scales.deep(most));
      path.lineTo(Math.min(scales.x(end), parts.right), scales.deep(most));
    }
    from = to;
  }
}

/** Arena, lower bound and peak step, through chart and profile. */
function drawLines(ctx, plan, parts, scales, theme) {
  const levels = [[plan.arena, theme.text, []]];
  if (plan.bound !== plan.arena) levels.push([plan.bound, theme.bound, [6, 4]]);
  for (const [value, color, dash] of levels) {
    level(ctx, scales.y(value), parts, parts.top, parts.bottom, color, dash);
    level(ctx, scales.deep(value), parts, parts.stripTop, parts.stripBottom, color, dash);
  }
  const x = scales.x(plan.peakStep + 0.5);
  if (x < parts.left || x > parts.right) return;
  for (const [top, bottom] of [[parts.top, parts.bottom], [parts.stripTop, parts.stripBottom]]) {
    stroke(ctx, [x, top, x, bottom], theme.peak, 1, [4, 3]);
  }
}

function level(ctx, y, parts, top, bottom, color, dash) {
  if (y < top - 1 || y > bottom + 1) return;
  stroke(ctx, [parts.left, Math.round(y) + 0.5, parts.right, Math.round(y) + 0.5], color, 1.5, dash);
}

function stroke(ctx, [x0, y0, x1, y1], color, width, dash) {
  ctx.strokeStyle = color;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
  ctx.setLineDash([]);
}
