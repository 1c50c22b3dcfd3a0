// Typed columns of plans as Python packs them, for reports and pages.

export const UTF8 = new TextDecoder();
const TYPES = { u1: Uint8Array, i4: Int32Array, u4: Uint32Array, f8: Float64Array };

/** An entry [type, byte offset, length, unit] as a typed array on `buffer`, as it was packed. */
export function columnOf(buffer, base, [type, at, length]) {
  return new TYPES[type](buffer, base + at, length);
}

/** A column of multiples of a unit → bytes or steps. */
export function inUnits(column, unit) {
  const values = new Float64Array(column);
  if (unit !== 1) for (let i = 0; i < values.length; i += 1) values[i] *= unit;
  return values;
}

export function placesOf(ids) {
  return new Map(Array.from(ids, (id, place) => [id, place]));
}

/** index → text, decoded when asked for; `places` says where, if not everything is there. */
export function textReader(ends, text, fallback, places = null) {
  return (index) => {
    const place = places ? places.get(index) : index;
    if (place === undefined || place >= ends.length) return fallback(index);
    return UTF8.decode(text.subarray(place === 0 ? 0 : ends[place - 1], ends[place]));
  };
}

/** The buffer of a rectangle. */
export function ownerOf(plan, rect) {
  return plan.owner ? plan.owner[rect] : rect;
}

/** The last entry of `starts` at a step or before it, or -1. */
export function entryAt(starts, step) {
  let [low, high] = [0, starts.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
