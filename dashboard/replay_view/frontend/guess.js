// Predict: what the strategy says of the place that a learner clicked: what is wrong with it, not where it goes
// instead. The page's tests hold every sentence against the engine's own `agrees`.

import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { OPEN, TAKEN } from "./trace.js";

const SCAN = "a scan takes the smallest free range that holds it, else the place of a buffer that gives way, else the end";

/** {agrees, sentence, overlaps} for the buffer of `step` at `offset`. */
export function judgeGuess(trace, step, offset) {
  const own = trace.buffer(step);
  const said = trace.steps.sentence[step];
  const goes = trace.steps.offset[step];
  if (offset === goes) return agreed(said);
  if (trace.fixed[own] >= 0) return refused(`No: ${trace.buffers.label[own]} has the fixed offset ${formatBytes(goes)}.`);
  const alignment = trace.alignment[own];
  if (offset % alignment) {
    const near = offset - (offset % alignment);
    return refused(`No: offsets of ${trace.buffers.label[own]} are multiples of ${formatCount(alignment)} B; `
      + `the next one below is ${formatCount(near)} B.`);
  }
  const met = inTheWay(trace, step, offset);
  if (met.length) return refused(overlapping(trace, step, offset, met), met);
  return refused(elsewhere(trace, step, offset));
}

/** The same for shared objects: `number` of the lane that was clicked, -1 where there is none. */
export function judgeObject(trace, step, number) {
  const rows = trace.objectsAt(step);
  const joined = rows.find((row) => row.state === TAKEN);
  const right = joined ? joined.number : -1;
  if (number === right) return agreed(trace.steps.sentence[step]);
  if (number < 0) return refused("No: it needs no new object.");
  const seen = rows.find((row) => row.number === number);
  return refused(`No: object ${number} is ${seen ? seen.reason : "not free, or not made yet"}.`);
}

function agreed(said) {
  return { agrees: true, sentence: `Yes. ${said}`, overlaps: [] };
}

function refused(sentence, overlaps = []) {
  return { agrees: false, sentence, overlaps };
}

/** The buffers placed before `step` that would share bytes with its buffer at `offset`, lowest first. */
export function inTheWay(trace, step, offset) {
  const own = trace.buffer(step);
  const placed = trace.placedAt(step - 1);
  const found = [];
  for (let each = 0; each < placed.length; each += 1) {
    if (placed[each] < 0 || !trace.meets(each, own)) continue;
    if (sharesBytes(trace, own, offset, each, placed[each])) found.push(each);
  }
  return found.sort((a, b) => placed[a] - placed[b] || a - b);
}

/** Whether two buffers at two offsets share a byte at a step; gaps are counted. */
export function sharesBytes(trace, one, oneAt, other, otherAt) {
  const { start, end, low, high } = trace.pieces;
  return trace.piecesOf[one].some((a) => trace.piecesOf[other].some((b) => (
    start[a] < end[b] && start[b] < end[a]
    && oneAt + low[a] < otherAt + high[b] && otherAt + low[b] < oneAt + high[a]
    && low[a] < high[a] && low[b] < high[b]
  )));
}

function overlapping(trace, step, offset, met) {
  const others = met.length > 1 ? ` and ${met.length - 1} more` : "";
  const told = `No: there it overlaps ${trace.buffers.label[met[0]]}${others}, live at the same time.`;
  const hole = trace.holesAt(step).find((each) => each.short && each.low <= offset
    && (each.high === OPEN || offset < each.high));
  if (!hole || hole.size === null) return told;
  return `${told} The hole of ${formatBytes(hole.size)} is too small by ${formatCount(hole.short)} B.`;
}

/** It would be valid there, and the strategy goes somewhere else. */
function elsewhere(trace, step, offset) {
  const own = trace.buffer(step);
  const goes = trace.steps.offset[step];
  const valid = "It would fit there, but";
  if (trace.family === "no reuse") return `${valid} without reuse it goes behind all others.`;
  const holes = trace.holesAt(step);
  const end = offset + trace.buffers.size[own];
  const at = holes.find((hole) => hole.low <= offset && (hole.high === OPEN || end <= hole.high));
  const taken = holes.find((hole) => hole.state === TAKEN);
  if (at && at === taken) {
    return `The right hole, but ${formatBytes(offset - goes)} higher than needed.`;
  }
  if (trace.family === "linear scan") return `${valid} ${SCAN}.`;
  if (trace.fit === "top") return `${valid} this rule leaves holes empty and goes above the others.`;
  if (!at || !taken) return `${valid} the rule puts it elsewhere.`;
  return `${valid} ${whyNot(trace, taken, at)}.`;
}

function whyNot(trace, taken, at) {
  if (at.size === null) return "there is a hole that holds it, too";
  if (trace.fit === "first") return "that is not the lowest hole that holds it";
  if (at.size === taken.size) return "another hole is as tight, and lower";
  return `that hole has ${formatBytes(at.size)}, and a tighter one holds it, too`;
}
