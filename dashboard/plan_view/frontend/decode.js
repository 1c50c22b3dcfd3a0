// The bytes that Python packed → panels of typed arrays.

const COLUMN_TYPES = { u1: Uint8Array, i4: Int32Array, u4: Uint32Array, f8: Float64Array };
const UTF8 = new TextDecoder();

/** {header, difference, panels, wanted}. The columns of bytes and steps come out as Float64Array in bytes and steps. */
export function decode(message) {
  const bytes = message.slice();
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(UTF8.decode(bytes.subarray(8, 8 + length)));
  const reader = columnReader(bytes.buffer, 8 + length);
  const difference = header.difference && decodeDifference(header.difference, reader);
  const [panels, wanted] = [header.panels, header.wanted ?? []]
    .map((list) => list.map((raw) => decodePanel(raw, reader)));
  return { header, difference, panels, wanted };
}

/** Equal columns were packed once; they are decoded once too. */
function columnReader(buffer, base) {
  const done = new Map();
  const raw = ([code, at, length]) => new COLUMN_TYPES[code](buffer, base + at, length);
  const scaled = (entry) => {
    const name = entry.join();
    if (!done.has(name)) done.set(name, inUnits(raw(entry), entry[3]));
    return done.get(name);
  };
  return { raw, scaled };
}

function inUnits(column, unit) {
  const values = new Float64Array(column);
  if (unit !== 1) for (let i = 0; i < values.length; i += 1) values[i] *= unit;
  return values;
}

function decodePanel(raw, reader) {
  const panel = { ...raw, count: raw.start[2] };
  for (const name of ["start", "end", "offset", "size", "profileStart", "profileLive", "profileHigh"]) {
    panel[name] = reader.scaled(raw[name]);
  }
  panel.lines = raw.lines.map((line) => ({ ...line, start: reader.scaled(line.start), bytes: reader.scaled(line.bytes) }));
  panel.color = reader.raw(raw.color);
  panel.dimmed = raw.dimmed && reader.raw(raw.dimmed);
  panel.owner = raw.owner && reader.raw(raw.owner);
  panel.names = raw.names.ids && placesOf(reader.raw(raw.names.ids));
  panel.nameOf = textReader(raw.names, reader, (id) => `buffer ${id}`, panel.names);
  panel.labelOf = raw.stepLabels ? textReader(raw.stepLabels, reader, () => "") : () => "";
  panel.rectsOf = panel.owner ? rectFinder(panel.owner, 0, panel.count)
    : (buffer) => (buffer !== null && buffer < panel.count ? [buffer] : []);
  return panel;
}

function decodeDifference(raw, reader) {
  return { ...raw, bounds: reader.scaled(raw.bounds), base: reader.scaled(raw.base), head: reader.scaled(raw.head) };
}

function placesOf(ids) {
  return new Map(Array.from(ids, (id, place) => [id, place]));
}

/** index → text, decoded when asked for; `places` says where, if not everything is there. */
function textReader(entry, reader, fallback, places = null) {
  const ends = reader.raw(entry.ends);
  const text = reader.raw(entry.text);
  return (index) => {
    const place = places ? places.get(index) : index;
    if (place === undefined || place >= ends.length) return fallback(index);
    return UTF8.decode(text.subarray(place === 0 ? 0 : ends[place - 1], ends[place]));
  };
}

/** buffer → its rectangles, among those numbered from `from` up to `to`. */
export function rectFinder(owner, from, to) {
  if (!isAscending(owner, from, to)) return listed(owner, from, to);
  return (buffer) => {
    if (buffer === null) return [];
    let [low, high] = [from, to];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (owner[middle] < buffer) low = middle + 1;
      else high = middle;
    }
    const rects = [];
    for (; low < to && owner[low] === buffer; low += 1) rects.push(low);
    return rects;
  };
}

function isAscending(owner, from, to) {
  for (let rect = from + 1; rect < to; rect += 1) if (owner[rect - 1] > owner[rect]) return false;
  return true;
}

function listed(owner, from, to) {
  const rects = new Map();
  for (let rect = from; rect < to; rect += 1) {
    const buffer = owner[rect];
    if (rects.has(buffer)) rects.get(buffer).push(rect);
    else rects.set(buffer, [rect]);
  }
  return (buffer) => rects.get(buffer) ?? [];
}

export function ownerOf(panel, rect) {
  return panel.owner ? panel.owner[rect] : rect;
}

/** The entry of the profile in which a step lies, or -1. */
export function sectionAt(panel, step) {
  let low = 0;
  let high = panel.profileStart.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (panel.profileStart[middle] <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Whether a message is the one before, byte for byte. */
export function sameBytes(message, before) {
  return before?.length === message.length && message.every((byte, i) => byte === before[i]);
}
