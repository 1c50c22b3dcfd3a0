// Placing by hand: where the buffers lie, where they collide, and what the arena has come to. The page's tests
// hold the verdicts against the engine's own `judge`.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { percent, span } from "./dom.js";

const MOST_UNDOS = 200;
const SNAP = 7;

export class Attempt {
  constructor(trace, exercise) {
    this.trace = trace;
    this.exercise = exercise;
    this.past = [];
    this.offsets = this.stacked();
    this.limit = Math.max(1, this.arena(), exercise.rival?.bytes ?? 0) * 1.06;
  }

  /** Every buffer its own bytes, in order of time, above those at fixed offsets. */
  stacked() {
    const { start, size } = this.trace.buffers;
    const { fixed, alignment } = this.trace;
    const order = [...size.keys()].sort((a, b) => start[a] - start[b] || a - b);
    let top = Math.max(0, ...size.map((bytes, each) => (fixed[each] >= 0 ? fixed[each] + bytes : 0)));
    const offsets = new Float64Array(size.length);
    for (const each of order) {
      if (fixed[each] >= 0) {
        offsets[each] = fixed[each];
        continue;
      }
      offsets[each] = Math.ceil(top / alignment[each]) * alignment[each];
      top = offsets[each] + size[each];
    }
    return offsets;
  }

  arena() {
    return this.trace.buffers.size.reduce((most, size, each) => Math.max(most, this.offsets[each] + size), 0);
  }

  remember() {
    this.past.push(this.offsets.slice());
    if (this.past.length > MOST_UNDOS) this.past.shift();
  }

  start(offsets) {
    this.remember();
    this.offsets = Float64Array.from(offsets);
  }

  undo() {
    if (this.past.length) this.offsets = this.past.pop();
  }

  canMove(each) {
    return this.trace.fixed[each] < 0;
  }

  /** The offset nearest to `bytes` that is a multiple of the alignment; edges of neighbours draw it in. */
  snapped(each, bytes, bytesPerPixel) {
    const step = this.trace.alignment[each];
    const near = Math.max(0, Math.round(bytes / step) * step);
    let [best, distance] = [near, SNAP * bytesPerPixel];
    for (const edge of this.edges(each)) {
      const away = Math.abs(edge - bytes);
      if (away < distance) [best, distance] = [edge, away];
    }
    return best;
  }

  edges(each) {
    const { size } = this.trace.buffers;
    const step = this.trace.alignment[each];
    const found = [0];
    for (let other = 0; other < size.length; other += 1) {
      if (!this.trace.meets(each, other)) continue;
      const top = this.offsets[other] + size[other];
      found.push(Math.ceil(top / step) * step);
      const below = Math.floor((this.offsets[other] - size[each]) / step) * step;
      if (below >= 0) found.push(below);
    }
    return found;
  }

  judge() {
    const { exercise, trace, offsets } = this;
    const conflicts = conflictsOf(trace, offsets);
    const misaligned = trace.alignment.findIndex((step, each) => offsets[each] % step !== 0);
    const arena = this.arena();
    const valid = !conflicts.length && misaligned < 0;
    return {
      arena,
      conflicts,
      valid,
      gap: arena - exercise.bound,
      optimal: valid && arena === exercise.optimum,
      beatsGreedy: valid && arena < exercise.rival?.bytes,
      sentence: this.sentence(conflicts, misaligned, arena),
    };
  }

  sentence(conflicts, misaligned, arena) {
    const { name } = this.trace.buffers;
    if (conflicts.length) {
      const { one, other, start, end, low, high } = conflicts[0];
      const [first, last] = [low, high - 1].map((each) => each.toLocaleString("en-US"));
      const bytes = first === last ? `byte ${first}` : `bytes ${first} to ${last}`;
      return `${name[one]} and ${name[other]} share ${bytes} in ${span(start, end)}.`;
    }
    if (misaligned >= 0) {
      return `${name[misaligned]} must begin at a multiple of ${this.trace.alignment[misaligned]} B.`;
    }
    return this.finished(arena);
  }

  finished(arena) {
    const { rival, optimum, bound } = this.exercise;
    const told = `Complete, with ${formatBytes(arena)}`;
    if (arena === optimum) return `${told}: that is the optimum.`;
    const against = rival ? `${than(arena, rival)}, and ` : "";
    const over = bound ? `${percent(arena / bound - 1)} over` : "over";
    return `${told}: ${against}${over} the lower bound of ${formatBytes(bound)}.`;
  }
}

function than(arena, { bytes, strategy }) {
  if (arena === bytes) return `as much as ${strategy}`;
  return `${formatBytes(Math.abs(arena - bytes))} ${arena < bytes ? "less" : "more"} than ${strategy}`;
}

/** Every pair of pieces of two buffers that share bytes, in order of the buffers. */
export function conflictsOf(trace, offsets) {
  const { owner, start, end, low, high } = trace.pieces;
  const found = [];
  for (let a = 0; a < owner.length; a += 1) {
    for (let b = 0; b < owner.length; b += 1) {
      if (owner[a] >= owner[b]) continue;
      const [from, to] = [Math.max(start[a], start[b]), Math.min(end[a], end[b])];
      const bottom = Math.max(offsets[owner[a]] + low[a], offsets[owner[b]] + low[b]);
      const top = Math.min(offsets[owner[a]] + high[a], offsets[owner[b]] + high[b]);
      if (from < to && bottom < top) {
        found.push({ one: owner[a], other: owner[b], start: from, end: to, low: bottom, high: top });
      }
    }
  }
  return found;
}
