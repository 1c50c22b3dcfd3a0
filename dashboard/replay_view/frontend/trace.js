// A replay as the page asks for it: what is placed after a step, what the step looked at, and what meets it.

export const TAKEN = 0;
export const TOO_SMALL = 1;
export const OPEN = -1;

import { UTF8 } from "../../../memplan_engine/plotting/frontend/columns.js";

export function decodeMessage(bytes) {
  const { view, trace } = JSON.parse(UTF8.decode(bytes));
  return { view, trace: new Trace(trace) };
}

export class Trace {
  constructor(raw) {
    Object.assign(this, raw);
    this.count = raw.steps.buffer.length;
    this.piecesOf = raw.buffers.name.map(() => []);
    raw.pieces.owner.forEach((owner, piece) => this.piecesOf[owner].push(piece));
    this.lanes = raw.buffers.object ? lanesOf(raw.buffers) : null;
  }

  buffer(step) {
    return this.steps.buffer[step];
  }

  /** The step that has placed `buffer` as it lies after `step`. */
  decisionOf(buffer, step) {
    if (!this.tree) return this.steps.buffer.indexOf(buffer);
    let at = step;
    while (at >= 0 && !(this.steps.buffer[at] === buffer && this.places(at))) at = this.tree.parent[at];
    return at < 0 ? step : at;
  }

  /** Whether a node of the tree gives its buffer an offset. */
  places(node) {
    const kind = this.tree.kinds[this.tree.kind[node]];
    return kind === "place" || kind === "forced";
  }

  /** The offset of each buffer after `step`, -1 for those to come; after -1 nothing is placed. */
  placedAt(step) {
    const placed = new Float64Array(this.buffers.size.length).fill(-1);
    if (this.tree) return this.placedInTree(step, placed);
    const { buffer, offset, moved, moved_to: movedTo } = this.steps;
    for (let k = 0; k <= step; k += 1) {
      placed[buffer[k]] = offset[k];
      if (moved[k] >= 0) placed[moved[k]] = movedTo[k];
    }
    return placed;
  }

  placedInTree(node, placed) {
    for (let at = node; at >= 0; at = this.tree.parent[at]) {
      if (this.places(at)) placed[this.steps.buffer[at]] = this.steps.offset[at];
    }
    return placed;
  }

  /** The holes (or free ranges) that `step` looked at, lowest first. */
  holesAt(step) {
    if (!this.holes) return [];
    const { low, high, offset, short, state } = this.holes;
    return this.rowsOf(step, (row) => ({
      low: low[row],
      high: high[row],
      size: high[row] === OPEN ? null : high[row] - low[row],
      offset: offset[row],
      short: short[row],
      state: state[row],
      reason: this.reasonOf(state[row], short[row]),
    }));
  }

  objectsAt(step) {
    if (!this.objects) return [];
    const { number, size, value, state } = this.objects;
    return this.rowsOf(step, (row) => ({
      number: number[row],
      size: size[row],
      value: value[row],
      state: state[row],
      reason: this.reasonOf(state[row], 0),
    }));
  }

  rowsOf(step, make) {
    const { first } = this.steps;
    return Array.from({ length: first[step + 1] - first[step] }, (_, i) => make(first[step] + i));
  }

  reasonOf(state, short) {
    return short ? `too small by ${short.toLocaleString("en-US")} B` : this.states[state];
  }

  more(step) {
    return this.steps.more ? this.steps.more[step] : 0;
  }

  meets(one, other) {
    const within = (start, end, a, b) => start[a] < end[b] && start[b] < end[a];
    if (one === other || !within(this.buffers.start, this.buffers.end, one, other)) return false;
    if (this.family === "linear scan" || this.objects) return true;
    const { start, end } = this.pieces;
    return this.piecesOf[one].some((a) => this.piecesOf[other].some((b) => within(start, end, a, b)));
  }

  /** Those that had a place before `step` and are live with its buffer; in a linear scan, the active set. */
  liveAt(step, placed) {
    const own = this.buffer(step);
    if (own < 0) return [];
    const scan = this.family === "linear scan";
    const { size } = this.buffers;
    const found = [];
    for (let each = 0; each < placed.length; each += 1) {
      if (placed[each] < 0 || !this.meets(each, own)) continue;
      if (!scan || (this.fixed[each] < 0 && size[each] > 0)) found.push(each);
    }
    return found;
  }

  arenaBefore(step) {
    const before = this.tree ? this.tree.parent[step] : step - 1;
    return before >= 0 ? this.steps.arena[before] : 0;
  }

  /** The bytes of each object before `step`, by number; 0 for those to come. */
  objectSizes(step) {
    const sizes = new Float64Array(this.lanes.length);
    for (let k = 0; k < step; k += 1) {
      const buffer = this.steps.buffer[k];
      const object = this.buffers.object[buffer];
      sizes[object] = Math.max(sizes[object], this.buffers.size[buffer]);
    }
    return sizes;
  }
}

/** Where each object lies in the end: {low, size}. */
function lanesOf({ object, offset, size }) {
  const lanes = Array.from({ length: Math.max(-1, ...object) + 1 }, () => ({ low: Infinity, size: 0 }));
  object.forEach((number, buffer) => {
    lanes[number].low = Math.min(lanes[number].low, offset[buffer]);
    lanes[number].size = Math.max(lanes[number].size, size[buffer]);
  });
  return lanes;
}
