// What a step looked at, drawn over the lifetime of its buffer: holes, free ranges, shared objects.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { boxOf } from "./geometry.js";
import { cutTo, hatch, outline, plate } from "./paint.js";
import { OPEN, TAKEN } from "./trace.js";

/** Where a step looked at many, only few are named in the picture; the list beside it has all of them. */
const MANY = 12;
const FEW = 6;

/** Draw the holes of `step`; gives their boxes with words, for the pointer. */
export function drawHoles(ctx, frame, trace, step, theme) {
  const own = trace.buffer(step);
  const { start, end } = trace.buffers;
  const spots = trace.holesAt(step).map((hole) => {
    const top = hole.high === OPEN ? Math.max(frame.limit, hole.low) : hole.high;
    const box = boxOf(frame, start[own], end[own], hole.low, top);
    const size = hole.size === null ? "top of stack" : formatBytes(hole.size);
    return { box, hole, text: `${size} · ${hole.state === TAKEN ? "chosen" : hole.reason}`, size };
  });
  for (const spot of spots) drawHole(ctx, spot, theme);
  const taken = spots.find((spot) => spot.hole.state === TAKEN);
  if (taken) outline(ctx, taken.box, theme.taken, 2, taken.hole.high === OPEN ? [7, 4] : []);
  return spots;
}

function drawHole(ctx, { box, hole }, theme) {
  if (hole.state === TAKEN) return;
  ctx.globalAlpha = 0.55;
  hatch(ctx, box, theme.rejected);
  ctx.globalAlpha = 1;
  outline(ctx, box, theme.rejected, 1, [4, 3]);
}

/** Words beside or in the holes, after everything else: sizes always where they fit, reasons where they do. */
export function labelHoles(ctx, frame, spots, covered, theme) {
  const busy = [...covered];
  const weight = ({ hole, box }) => (hole.state === TAKEN ? Infinity : box.h);
  const inOrder = [...spots].sort((a, b) => weight(b) - weight(a)).slice(0, spots.length > MANY ? FEW : MANY);
  for (const spot of inOrder) {
    const taken = spot.hole.state === TAKEN;
    const color = taken ? theme.taken : theme.rejected;
    ctx.font = `${taken ? 600 : 400} 11px ${theme.font}`;
    const text = `${taken ? "✓ " : ""}${spot.text}`;
    const place = placeOf(ctx, frame, spot, text, busy);
    if (!place) continue;
    busy.push(place);
    plate(ctx, frame, place.x, place.y + 8, place.text, color, theme, taken);
  }
}

/** A free place for a label: inside, to the right, to the left; the size alone where no more fits. */
function placeOf(ctx, frame, { box, size, hole }, text, busy) {
  const middle = Math.max(frame.top, hole.high === OPEN ? box.y + box.h - 34 : box.y + box.h / 2 - 8);
  for (const words of [text, size]) {
    const width = ctx.measureText(words).width + 10;
    const tries = [
      { x: box.x + 4, fits: width <= box.w - 6 && box.h >= 17 },
      { x: box.x + box.w + 4, fits: box.x + box.w + 4 + width <= frame.right },
      { x: box.x - width - 4, fits: box.x - width - 4 >= frame.left },
    ];
    for (const each of tries) {
      const place = { x: each.x, y: middle, w: width, h: 16, text: words };
      if (each.fits && !busy.some((other) => overlap(other, place))) return place;
    }
  }
  return null;
}

function overlap(a, b) {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}

/** Draw the objects that there are before `step` as lanes over all of time. */
export function drawObjects(ctx, frame, trace, step, theme) {
  const own = trace.buffer(step);
  const sizes = trace.objectSizes(step);
  const looked = new Map(trace.objectsAt(step).map((each) => [each.number, each]));
  const { start, end } = trace.buffers;
  const spots = [];
  trace.lanes.forEach(({ low }, number) => {
    if (!sizes[number]) return;
    drawLane(ctx, frame, low, sizes[number], theme);
    const seen = looked.get(number);
    if (!seen) return;
    const box = boxOf(frame, start[own], end[own], low, low + sizes[number]);
    const text = `object ${number}, ${formatBytes(sizes[number])} · ${seen.reason}`;
    const spot = { box, hole: { ...seen, high: 0 }, text, size: `object ${number}` };
    drawHole(ctx, spot, theme);
    spots.push(spot);
  });
  const taken = spots.find((spot) => spot.hole.state === TAKEN);
  if (taken) outline(ctx, taken.box, theme.taken, 2);
  return spots;
}

/** The edges of an object, over all of time. */
export function drawLane(ctx, frame, low, size, theme) {
  ctx.fillStyle = theme.axis;
  const width = frame.right - frame.left;
  for (const bytes of [low, low + size]) ctx.fillRect(frame.left, Math.round(frame.y(bytes)), width, 1);
}

/** The name of each lane at its right end; gives their boxes. */
export function nameLanes(ctx, frame, trace, step, theme) {
  const sizes = trace.objectSizes(step + 1);
  const boxes = [];
  ctx.font = `400 11px ${theme.font}`;
  trace.lanes.forEach(({ low }, number) => {
    const y = frame.y(low + sizes[number] / 2);
    if (!sizes[number] || sizes[number] * frame.byteHeight < 16) return;
    boxes.push(plate(ctx, frame, frame.right - 70, y, cutTo(ctx, `object ${number}`, 66), theme.muted, theme));
  });
  return boxes;
}
