// A panel of which the browser has only what its picture shows: the whole from afar, a window from near by, and
// single buffers that were asked for. They stand in one set of columns, in this order.

import { rectFinder } from "./decode.js";

const NUMBERS = ["start", "end", "offset", "size"];
const MARKS = ["color", "owner", "dimmed"];
const SPARE = 256;
const COARSEST = 5;

/** The panel with what is known from near by (or null), and room for single buffers. The one before is lost: all
 * that are made of one `far` share their columns. */
export function layered(far, near) {
  const count = far.count + (near?.count ?? 0);
  const data = { ...far, far, near, count, singles: new Map(), asked: new Map(), used: 0 };
  const columns = roomFor(far, count);
  if (near) for (const name of [...NUMBERS, ...MARKS]) put(columns[name], near[name], far.count, count);
  Object.assign(data, columns, { dimmed: far.dimmed || near?.dimmed ? columns.dimmed : null });
  data.rangeFor = (view) => (near && covers(near, view) ? [far.count, count] : [0, count]);
  data.rectsOf = finderOf(data);
  data.knows = (buffer) => [data.asked, near?.names, far.names].some((names) => names?.has(buffer));
  data.nameOf = (buffer) => data.asked.get(buffer) ?? (near?.names.has(buffer) ? near : far).nameOf(buffer);
  return data;
}

/** Columns that begin with those of `far` and have room for `count` rectangles and single ones. */
function roomFor(far, count) {
  if (far.columns && far.columns.color.length >= count + SPARE) return far.columns;
  const room = count + (count >> 2) + SPARE;
  const types = { color: Uint8Array, owner: Int32Array, dimmed: Uint8Array };
  far.columns = {};
  for (const name of [...NUMBERS, ...MARKS]) {
    far.columns[name] = new (types[name] ?? Float64Array)(room);
    put(far.columns[name], far[name], 0, far.count);
  }
  return far.columns;
}

function put(column, values, from, to) {
  if (values) column.set(values, from);
  else column.fill(0, from, to);
}

/** buffer → its rectangles; some of its pieces may be known from afar only. */
function finderOf({ far, count, owner, singles }) {
  const inFar = rectFinder(owner, 0, far.count);
  const inNear = rectFinder(owner, far.count, count);
  return (buffer) => {
    if (singles.has(buffer)) return singles.get(buffer);
    const [near, away] = [inNear(buffer), inFar(buffer)];
    return away.length > near.length ? away : near;
  };
}

/** Take the rectangles and the names of single buffers, found in `one`; the oldest give way. */
export function remember(data, one) {
  for (let i = 0; i < one.count; i += 1) {
    const buffer = one.owner[i];
    data.asked.set(buffer, one.nameOf(buffer));
    if (data.used === SPARE) {
      data.singles.clear();
      data.used = 0;
    }
    const at = data.count + data.used;
    data.used += 1;
    for (const name of [...NUMBERS, "color", "owner"]) data[name][at] = one[name][i];
    if (data.dimmed) data.dimmed[at] = one.dimmed?.[i] ?? 0;
    const others = i > 0 && one.owner[i - 1] === buffer ? data.singles.get(buffer) ?? [] : [];
    data.singles.set(buffer, [...others, at]);
  }
}

/** Whether a crop shows all of a view: it has every rectangle there, or was made for this view. */
export function covers({ view: { window: [x0, x1, y0, y1] } }, view) {
  return x0 <= view.x0 && view.x1 <= x1 && y0 <= view.y0 && view.y1 <= y1;
}

/** Whether a view on width × height device pixels looks exactly as with all rectangles, and its profile too. */
export function isSharp(data, view, { width, height }) {
  const { sectionsEach, window: [from, to] } = profileFor(data, view).view;
  if (sectionsEach > 1 && to - from > COARSEST * (view.x1 - view.x0)) return false;
  return [data.near, data.far].some((part) => {
    if (!part || !covers(part, view)) return false;
    if (part.view.whole) return true;
    const { window: [x0, x1, y0, y1], cells } = part.view;
    return x0 === view.x0 && x1 === view.x1 && y0 === view.y0 && y1 === view.y1
      && cells[0] === width && cells[1] === height;
  });
}

/** The profile for a view: the finest that reaches over all of it. */
export function profileFor(data, view) {
  const near = data.near;
  if (!near || near.view.window[0] > view.x0 || near.view.window[1] < view.x1) return data;
  return near;
}
