// Who is live at a step, and the groups that it falls into.

import { formatSteps } from "../../../memplan_engine/plotting/frontend/format.js";

const NOBODY = -1;

/** What Python packed about the buffers of a panel → typed arrays and readers of texts. */
export function decodePanes(raw, reader) {
  const texts = (entry) => reader.texts(entry, () => "");
  const rows = ([ends, ids]) => rowReader(reader.raw(ends), reader.raw(ids));
  const groupings = new Map(Object.entries(raw.groupings).map(([by, each]) => [by, {
    count: each.parent[2],
    label: texts(each.labels),
    parent: reader.raw(each.parent),
    group: reader.raw(each.group),
    leaf: texts(each.leaf),
  }]));
  const { ops } = raw;
  const [stack, frames, framesOf] = [reader.raw(raw.stack), texts(raw.frames), rows(raw.stacks)];
  return {
    groupings,
    by: raw.by,
    always: raw.always,
    ties: raw.ties,
    scratchStart: reader.scaled(raw.scratchStart),
    scratchBytes: reader.scaled(raw.scratchBytes),
    ownName: texts(raw.ownNames),
    tensor: texts(raw.tensors),
    kind: texts(raw.kinds),
    place: texts(raw.places),
    maker: reader.raw(raw.maker),
    readersOf: rows(raw.readers),
    stackOf: (buffer) => (stack[buffer] === NOBODY ? [] : Array.from(framesOf(stack[buffer]), frames)),
    ops: {
      count: ops.makes[2],
      name: texts(ops.names),
      ownName: texts(ops.ownNames),
      properties: ops.properties.map(([label, entry]) => [label, texts(entry)]),
      source: texts(ops.sources),
      code: texts(ops.codes),
      step: reader.scaled(ops.step),
      makes: reader.raw(ops.makes),
      inputsOf: rows(ops.inputs),
    },
  };
}

/** row → its ids. */
function rowReader(ends, ids) {
  return (row) => ids.subarray(row === 0 ? 0 : ends[row - 1], ends[row]);
}

/** Bytes that each holder has at a step: the buffers, and behind them what single ops hold inside. */
export function bytesAt(panel, step) {
  const { panes, count, start, end, size, owner } = panel;
  const buffers = panel.buffers;
  const bytes = new Float64Array(buffers + panes.scratchStart.length);
  for (let rect = 0; rect < count; rect += 1) {
    if (start[rect] <= step && step < end[rect]) bytes[owner ? owner[rect] : rect] += size[rect];
  }
  for (let i = 0; i < panes.scratchStart.length; i += 1) {
    if (panes.scratchStart[i] === step) bytes[buffers + i] = panes.scratchBytes[i];
  }
  return bytes;
}

/** The tree of what has `bytes`: {total, children(group)}, where -1 stands for everything. Children are {group} or
 * {holder}, each with its bytes, largest first; O(holders + groups). */
export function treeOf(grouping, bytes, always) {
  const sums = new Float64Array(grouping.count);
  const below = new Map();
  const note = (group, child) => {
    if (!below.has(group)) below.set(group, []);
    below.get(group).push(child);
  };
  let total = always;
  for (let holder = 0; holder < bytes.length; holder += 1) {
    if (bytes[holder] === 0) continue;
    total += bytes[holder];
    note(grouping.group[holder], { holder, bytes: bytes[holder] });
    for (let group = grouping.group[holder]; group !== NOBODY; group = grouping.parent[group]) {
      sums[group] += bytes[holder];
    }
  }
  const seen = new Set();
  for (const start of [...below.keys()]) {
    for (let group = start; group !== NOBODY && !seen.has(group); group = grouping.parent[group]) {
      seen.add(group);
      note(grouping.parent[group], { group, bytes: sums[group] });
    }
  }
  if (always) note(NOBODY, { always: true, bytes: always });
  const children = (group) => (below.get(group) ?? []).sort((a, b) => Math.abs(b.bytes) - Math.abs(a.bytes));
  return { total, children };
}

/** The groups that a holder lies in, the outermost first. */
export function pathOf(grouping, holder) {
  const path = [];
  for (let group = grouping.group[holder]; group !== NOBODY; group = grouping.parent[group]) path.unshift(group);
  return path;
}

/** Bytes per holder at one step less those at another. */
export function minus(bytes, base) {
  return bytes.map((value, holder) => value - base[holder]);
}

/** "steps 74 to 75, 2 in all", "step 3". */
export function lifetimeWords(start, end) {
  return end - start === 1 ? `step ${start}` : `steps ${start} to ${end - 1}, ${formatSteps(end - start)}`;
}

/** The line that a buffer comes from: that of the op that makes it, or where it was asked for; "" for none. */
export function sourceOf({ buffers, panes }, buffer) {
  const maker = buffer < buffers ? panes.maker[buffer] : NOBODY;
  if (maker !== NOBODY) return panes.ops.source(maker);
  return buffer < buffers ? panes.place(buffer) : "";
}

/** The file's name and the line: "modeling_gpt2.py:282". */
export function lineOf(source) {
  return source.slice(source.lastIndexOf("/") + 1);
}
