// The picture in each mode: what is placed, what is looked at, what the learner does.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { drawHoles, drawLane, drawObjects, labelHoles, nameLanes } from "./candidates.js";
import { boxOf } from "./geometry.js";
import {
  drawGround, drawNamedLevels, drawSteps, drawStripOf, fillBox, hatch, nameBox, outline, paled, plate,
} from "./paint.js";

const LEAST = 6;

/** One step of a replay; gives what the pointer can ask about. */
export function drawStep(ctx, frame, scene, step, theme) {
  const { trace } = scene;
  const placed = trace.placedAt(step);
  const own = trace.buffer(step);
  drawGround(ctx, frame, theme);
  if (own >= 0) drawLifetime(ctx, frame, trace, own, theme);
  const live = new Set(trace.liveAt(step, placed));
  drawPlaced(ctx, frame, scene, placed, (each) => (each === own ? -1 : live.has(each) ? theme.near : theme.far), theme);
  const spots = trace.objects ? drawObjects(ctx, frame, trace, step, theme)
    : own >= 0 ? drawHoles(ctx, frame, trace, step, theme) : [];
  const current = own >= 0 && placed[own] >= 0 ? drawCurrent(ctx, frame, scene, own, placed[own], theme) : null;
  drawMoved(ctx, frame, scene, step, placed, theme);
  const names = drawNamedLevels(ctx, frame, levelsOfStep(trace, step, theme), theme);
  if (trace.objects) names.push(...nameLanes(ctx, frame, trace, step, theme));
  labelHoles(ctx, frame, spots, current ? [current, ...names] : names, theme);
  drawStripOf(ctx, frame, trace.pieces, placed, stripLimit(trace), theme);
  drawSteps(ctx, frame, theme);
  return { spots, placed };
}

function stripLimit(trace) {
  return Math.max(1, trace.arena_bytes);
}

function drawLifetime(ctx, frame, trace, own, theme) {
  const { start, end } = trace.buffers;
  const box = boxOf(frame, start[own], end[own], 0, frame.limit);
  ctx.fillStyle = theme.band;
  ctx.fillRect(box.x, frame.top, box.w, frame.bottom - frame.top);
  ctx.fillRect(box.x, frame.stripTop, box.w, frame.stripBottom - frame.stripTop);
}

/** The rectangles of all that is placed; `paleOf(buffer)` says how pale, 0 to 1, below 0 for not at all. */
function drawPlaced(ctx, frame, { trace, rgbOf }, placed, paleOf, theme) {
  const { owner, start, end, low, high } = trace.pieces;
  for (let piece = 0; piece < owner.length; piece += 1) {
    const each = owner[piece];
    const pale = placed[each] < 0 || high[piece] === low[piece] ? -1 : paleOf(each);
    if (pale < 0) continue;
    const box = boxOf(frame, start[piece], end[piece], placed[each] + low[piece], placed[each] + high[piece]);
    fillBox(ctx, box, paled(rgbOf(each), theme, pale));
    if (box.h >= 13 && box.w >= 30) {
      nameBox(ctx, box, trace.buffers.label[each], pale > theme.near ? theme.muted : theme.text, theme);
    }
  }
}

/** The buffer that the step places, bright; gives the box of its first piece. */
function drawCurrent(ctx, frame, { trace, rgbOf, inkOf }, own, offset, theme) {
  const { start, end, low, high } = trace.pieces;
  let first = null;
  for (const piece of trace.piecesOf[own]) {
    if (high[piece] === low[piece]) continue;
    const box = broad(boxOf(frame, start[piece], end[piece], offset + low[piece], offset + high[piece]));
    fillBox(ctx, box, paled(rgbOf(own), theme, 0));
    outline(ctx, box, theme.text, box.w > LEAST && box.h > LEAST ? 2 : 1);
    const name = `${trace.buffers.label[own]} · ${formatBytes(trace.buffers.size[own])}`;
    nameBox(ctx, box, name, inkOf(own), theme, true);
    first = first ?? box;
  }
  return first;
}

/** At least so large that it is found among thousands. */
function broad({ x, y, w, h }) {
  const [wide, tall] = [Math.max(w, LEAST), Math.max(h, LEAST)];
  return { x: x - Math.floor((wide - w) / 2), y: y - Math.floor((tall - h) / 2), w: wide, h: tall };
}

function drawMoved(ctx, frame, { trace }, step, placed, theme) {
  const mover = trace.steps.moved[step];
  if (mover < 0) return;
  const { start, end, size, name } = trace.buffers;
  const box = boxOf(frame, start[mover], end[mover], placed[mover], placed[mover] + size[mover]);
  outline(ctx, box, theme.bound, 2, [6, 3]);
  plate(ctx, frame, box.x + 4, box.y + box.h / 2, `${name[mover]} moved here`, theme.bound, theme, true);
}

function levelsOfStep(trace, step, theme) {
  const [least, last] = [trace.lower_bound_bytes, trace.arena_bytes];
  const arena = trace.steps.arena[step];
  const text = last === least ? "arena in the end = lower bound" : "arena in the end";
  const levels = [{ bytes: last, text, color: theme.muted, dash: [], side: "right" }];
  if (last !== least) {
    levels.unshift({ bytes: least, text: "lower bound", color: theme.bound, dash: [6, 4], side: "right", below: true });
  }
  if (arena && arena !== last) {
    levels.push({ bytes: arena, text: "arena so far", color: theme.text, dash: [], side: "left" });
  }
  return levels;
}

/** Before a prediction: what is placed, the lifetime of the next one, and where the learner would put it. */
export function drawQuestion(ctx, frame, scene, step, ghost, answer, theme) {
  const { trace } = scene;
  const placed = trace.placedAt(step - 1);
  const own = trace.buffer(step);
  drawGround(ctx, frame, theme);
  drawLifetime(ctx, frame, trace, own, theme);
  const wrong = new Set(answer?.overlaps ?? []);
  drawPlaced(ctx, frame, scene, placed, (each) => (trace.meets(each, own) ? theme.near : theme.far), theme);
  for (const each of wrong) ringed(ctx, frame, trace, each, placed[each], theme);
  if (trace.objects) {
    drawBareLanes(ctx, frame, trace, step, theme);
    nameLanes(ctx, frame, trace, step - 1, theme);
  }
  if (ghost >= 0) drawGhost(ctx, frame, scene, own, ghost, theme);
  drawStripOf(ctx, frame, trace.pieces, placed, stripLimit(trace), theme);
  drawSteps(ctx, frame, theme);
  return { spots: [], placed };
}

function ringed(ctx, frame, trace, each, at, theme) {
  const { start, end, size } = trace.buffers;
  outline(ctx, boxOf(frame, start[each], end[each], at, at + size[each]), theme.wrong, 2);
}

function drawBareLanes(ctx, frame, trace, step, theme) {
  const sizes = trace.objectSizes(step);
  trace.lanes.forEach(({ low }, number) => {
    if (sizes[number]) drawLane(ctx, frame, low, sizes[number], theme);
  });
}

function drawGhost(ctx, frame, { trace, rgbOf }, own, offset, theme) {
  const { start, end, size, name } = trace.buffers;
  const box = boxOf(frame, start[own], end[own], offset, offset + size[own]);
  ctx.globalAlpha = 0.75;
  fillBox(ctx, box, paled(rgbOf(own), theme, 0.15));
  ctx.globalAlpha = 1;
  outline(ctx, box, theme.text, 1.5, [5, 3]);
  plate(ctx, frame, box.x + 4, box.y + box.h / 2, `${name[own]} at ${formatBytes(offset)}?`, theme.text, theme, true);
}

/** The guess beside the strategy's own choice, once it is answered. */
export function drawGuess(ctx, frame, { trace }, step, guess, theme) {
  const own = trace.buffer(step);
  const { start, end, size } = trace.buffers;
  const box = boxOf(frame, start[own], end[own], guess, guess + size[own]);
  outline(ctx, box, theme.wrong, 2, [5, 3]);
  plate(ctx, frame, box.x + 4, box.y + box.h / 2, "your guess", theme.wrong, theme, true);
}

/** An exercise: everything bright, what collides hatched, and the levels to beat. */
export function drawAttempt(ctx, frame, scene, attempt, state, theme) {
  const { trace } = scene;
  drawGround(ctx, frame, theme);
  drawPlaced(ctx, frame, scene, attempt.offsets, (each) => (each === state.held ? 0 : 0.35), theme);
  for (const each of attempt.judge().conflicts) {
    const box = boxOf(frame, each.start, each.end, each.low, each.high);
    hatch(ctx, box, theme.wrong);
    outline(ctx, box, theme.wrong, 2);
  }
  if (state.held >= 0) {
    const { start, end, size } = trace.buffers;
    const at = attempt.offsets[state.held];
    const box = boxOf(frame, start[state.held], end[state.held], at, at + size[state.held]);
    outline(ctx, box, theme.text, 2);
    ctx.font = `600 11px ${theme.font}`;
    plate(ctx, frame, box.x + box.w + 4, box.y + box.h / 2, `at ${formatBytes(at)}`, theme.text, theme, true);
  }
  const { rival, bound } = attempt.exercise;
  const levels = [
    { bytes: bound, text: "lower bound", color: theme.bound, dash: [6, 4], side: "right", below: true },
    ...(rival ? [{ bytes: rival.bytes, text: rival.strategy, color: theme.muted, dash: [2, 3], side: "right" }] : []),
    { bytes: attempt.arena(), text: "yours", color: theme.text, dash: [], side: "left" },
  ];
  drawNamedLevels(ctx, frame, levels.filter((each) => each.bytes !== bound || each.text !== rival?.strategy), theme);
  drawStripOf(ctx, frame, trace.pieces, attempt.offsets, frame.limit, theme);
  drawSteps(ctx, frame, theme);
}
