// Names beside what is large at the peak and too narrow to hold its own.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { fitted, measurer } from "../../../memplan_engine/plotting/frontend/fitting.js";
import { levelsOf } from "../../../memplan_engine/plotting/frontend/levels.js";
import { covered, LINE_HEIGHT } from "./level_names.js";

const NARROW = 40;
const LEAST_SHARE = 0.02;
const MOST = 4;
const AWAY = 16;
// Of a name in two lines, which is for where columns leave little room between them.
const NEAR = 5;
const WIDEST = 190;
const SHIFTS = [0, -1, 1, -2, 2, -3, 3];
const SEPARATOR = " · ";
// What each pixel of a name costs that lies on rectangles, what leaving out its module costs, what two lines cost
// and what a level through it does, where a line higher or lower costs 1: found by looking at GPT-2's layers, which
// stand nearer than whole names are long, at 640 and at 690 pixels, and at a list whose highest buffer touches the
// arena. A name across the next layer's column reads as if it were that layer's.
const COVERED = 0.25;
const WITHOUT_MODULE = 1.5;
const IN_TWO_LINES = 0.5;
const CROSSED = 8;
const HALO = 4;

/** Draw them, none over the names of rectangles in `named`; returns the places they take. */
export function drawCallouts(ctx, data, parts, scales, view, theme, raster, named = []) {
  ctx.font = `600 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const measure = measurer(ctx);
  const taken = [];
  const lines = levelsOf(data, theme).map(({ value }) => scales.y(value));
  for (const rect of slivers(data, parts, scales, view)) {
    const edges = { left: scales.x(data.start[rect]), right: scales.x(data.end[rect]), y: middleOf(data, rect, parts, scales) };
    const spots = textsOf(data, rect, measure).flatMap(({ texts, cost }) => {
      const width = Math.max(...texts.map(measure)) + 8;
      const spot = spotBeside(edges, width, texts.length, { parts, raster, lines, taken: [...named, ...taken] });
      return spot ? [{ ...spot, texts, cost: spot.cost + cost }] : [];
    });
    if (spots.length === 0) continue;
    const spot = spots.reduce((best, other) => (other.cost < best.cost ? other : best));
    spot.texts.forEach((_, row) => taken.push({ ...spot, y: spot.y + row * LINE_HEIGHT }));
    paintCallout(ctx, spot, edges, theme);
  }
  return taken;
}

/** What a rectangle may be called, and what that costs: its name and size, without its module, and in two lines. */
function textsOf(data, rect, measure) {
  const size = formatBytes(data.size[rect]);
  const whole = data.nameOf(ownerOf(data, rect));
  const short = whole.split(SEPARATOR).at(-1);
  const inOne = (name) => [`${fitted(name, WIDEST - measure(`  ${size}`), measure)} ${size}`.trim()];
  const shortens = whole.includes(SEPARATOR) ? WITHOUT_MODULE : 0;
  return [
    { texts: inOne(whole), cost: 0 },
    ...(shortens ? [{ texts: inOne(short), cost: shortens }] : []),
    { texts: [fitted(short, WIDEST, measure), size].filter(Boolean), cost: shortens + IN_TWO_LINES },
  ];
}

/** The largest that are live at the peak, in view, and too narrow for a name; no more than a few. */
function slivers(data, parts, scales, view) {
  const { peakStep, start, end, offset, size, dimmed } = data;
  const found = [];
  const [from, to] = data.rangeFor ? data.rangeFor(view) : [0, data.count];
  for (let rect = from; rect < to; rect += 1) {
    if (start[rect] > peakStep || end[rect] <= peakStep || dimmed?.[rect]) continue;
    if (size[rect] < LEAST_SHARE * data.arena) continue;
    if (end[rect] <= view.x0 || start[rect] >= view.x1 || offset[rect] >= view.y1) continue;
    if (offset[rect] + size[rect] <= view.y0 || (end[rect] - start[rect]) * scales.stepWidth >= NARROW) continue;
    found.push(rect);
  }
  return found.sort((a, b) => size[b] - size[a] || offset[b] - offset[a]).slice(0, MOST);
}

/** The middle of what is seen of a rectangle. */
function middleOf(data, rect, parts, scales) {
  const top = Math.max(parts.top, scales.y(data.offset[rect] + data.size[rect]));
  return (top + Math.min(parts.bottom, scales.y(data.offset[rect]))) / 2;
}

/** Left or right, a little higher or lower: where it covers least and nothing that is there already. */
function spotBeside({ left, right, y }, width, rows, { parts, raster, lines, taken }) {
  const away = rows > 1 ? NEAR : AWAY;
  const height = rows * LINE_HEIGHT;
  const tops = [...Array(rows).keys()].map((row) => row * LINE_HEIGHT);
  let best = null;
  for (const shift of SHIFTS) {
    for (const x of [right + away, left - away - width]) {
      const spot = { x, y: y - height / 2 + shift * (LINE_HEIGHT + 3), width };
      if (x < parts.left || x + width > parts.right || spot.y < parts.top || spot.y + height > parts.bottom) continue;
      if (taken.some((other) => tops.some((top) => overlaps(other, { ...spot, y: spot.y + top })))) continue;
      spot.covers = tops.reduce((sum, top) => sum + covered(x, spot.y + top, width, { parts, raster }), 0) / rows;
      const crossed = lines.some((line) => line > spot.y - 1 && line < spot.y + height + 1);
      const cost = spot.covers * width * COVERED + (crossed ? CROSSED : 0) + Math.abs(shift);
      if (!best || cost < best.cost) best = { ...spot, cost };
    }
  }
  return best;
}

function overlaps(one, other) {
  return one.x < other.x + other.width && other.x < one.x + one.width
    && Math.abs(one.y - other.y) < LINE_HEIGHT + 2;
}

function paintCallout(ctx, spot, { left, right, y }, theme) {
  const toRight = spot.x >= right;
  ctx.strokeStyle = theme.muted;
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.moveTo(toRight ? right - 1 : left + 1, y);
  ctx.lineTo(toRight ? spot.x : spot.x + spot.width, spot.y + (spot.texts.length * LINE_HEIGHT) / 2);
  ctx.stroke();
  // Not on a plate: what lies below a name stays to be seen around its letters.
  ctx.strokeStyle = theme.halo;
  ctx.lineWidth = HALO;
  ctx.lineJoin = "round";
  ctx.fillStyle = theme.text;
  spot.texts.forEach((text, row) => {
    const at = [text, spot.x + 4, spot.y + (row + 0.5) * LINE_HEIGHT + 1];
    ctx.strokeText(...at);
    ctx.fillText(...at);
  });
}
