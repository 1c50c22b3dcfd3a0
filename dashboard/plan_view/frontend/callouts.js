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
const WIDEST = 190;
const SHIFTS = [0, -1, 1, -2, 2, -3, 3];
const SEPARATOR = " · ";
// What each pixel of a name costs that lies on rectangles, what leaving out its module costs, and what a level
// through it does, where a line higher or lower costs 1: found by looking at GPT-2's layers, which stand nearer
// than whole names are long, and at a list whose highest buffer touches the arena.
const COVERED = 0.1;
const WITHOUT_MODULE = 1.5;
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
    const spots = textsOf(data, rect, measure).flatMap((text, short) => {
      const spot = spotBeside(edges, measure(text) + 8, { parts, raster, lines, taken: [...named, ...taken] });
      return spot ? [{ ...spot, text, cost: spot.cost + short * WITHOUT_MODULE }] : [];
    });
    if (spots.length === 0) continue;
    const spot = spots.reduce((best, other) => (other.cost < best.cost ? other : best));
    taken.push(spot);
    paintCallout(ctx, spot, edges, theme);
  }
  return taken;
}

/** What a rectangle may be called: its name and size, and the same without its module. */
function textsOf(data, rect, measure) {
  const size = formatBytes(data.size[rect]);
  const whole = data.nameOf(ownerOf(data, rect));
  const names = [whole, whole.slice(whole.lastIndexOf(SEPARATOR) + SEPARATOR.length)];
  return (whole.includes(SEPARATOR) ? names : [whole])
    .map((name) => `${fitted(name, WIDEST - measure(`  ${size}`), measure)} ${size}`.trim());
}

/** The largest that are alive at the peak, in view, and too narrow for a name; no more than a few. */
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
function spotBeside({ left, right, y }, width, { parts, raster, lines, taken }) {
  let best = null;
  for (const shift of SHIFTS) {
    for (const x of [right + AWAY, left - AWAY - width]) {
      const spot = { x, y: y - LINE_HEIGHT / 2 + shift * (LINE_HEIGHT + 3), width };
      if (x < parts.left || x + width > parts.right || spot.y < parts.top || spot.y + LINE_HEIGHT > parts.bottom) continue;
      if (taken.some((other) => overlaps(other, spot))) continue;
      spot.covers = covered(x, spot.y, width, { parts, raster });
      const crossed = lines.some((line) => line > spot.y - 1 && line < spot.y + LINE_HEIGHT + 1);
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
  ctx.lineTo(toRight ? spot.x : spot.x + spot.width, spot.y + LINE_HEIGHT / 2);
  ctx.stroke();
  // Not on a plate: what lies below a name stays to be seen around its letters.
  const at = [spot.text, spot.x + 4, spot.y + LINE_HEIGHT / 2 + 1];
  ctx.strokeStyle = theme.halo;
  ctx.lineWidth = HALO;
  ctx.lineJoin = "round";
  ctx.strokeText(...at);
  ctx.fillStyle = theme.text;
  ctx.fillText(...at);
}
