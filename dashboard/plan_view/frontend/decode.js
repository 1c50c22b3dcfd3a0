// The bytes that Python packed → panels of typed arrays.

import { decodePanes } from "./holders.js";
import { UTF8, columnOf, inUnits, placesOf, textReader } from "../../../memplan_engine/plotting/frontend/columns.js";

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
  const raw = (entry) => columnOf(buffer, base, entry);
  const scaled = (entry) => {
    const name = entry.join();
    if (!done.has(name)) done.set(name, inUnits(raw(entry), entry[3]));
    return done.get(name);
  };
  const texts = ({ ends, text }, fallback, places) => textReader(raw(ends), raw(text), fallback, places);
  return { raw, scaled, texts };
}

function decodePanel(raw, reader) {
  const panel = { ...raw, count: raw.start[2] };
  for (const name of ["start", "end", "offset", "size", "profileStart", "profileLive", "profileHigh"]) {
    panel[name] = reader.scaled(raw[name]);
  }
  panel.lines = raw.lines.map((line) => ({ ...line, start: reader.scaled(line.start), bytes: reader.scaled(line.bytes) }));
  panel.layers = raw.layers.map(({ labels, start, end }) => {
    const [nameOf, from, to] = [reader.texts(labels, () => ""), reader.scaled(start), reader.scaled(end)];
    return Array.from(from, (first, i) => ({ label: nameOf(i), start: first, end: to[i] }));
  });
  panel.color = reader.raw(raw.color);
  panel.dimmed = raw.dimmed && reader.raw(raw.dimmed);
  panel.owner = raw.owner && reader.raw(raw.owner);
  panel.names = raw.names.ids && placesOf(reader.raw(raw.names.ids));
  panel.nameOf = reader.texts(raw.names, (id) => `buffer ${id}`, panel.names);
  panel.labelOf = raw.stepLabels ? reader.texts(raw.stepLabels, () => "") : () => "";
  panel.panes = raw.panes && decodePanes(raw.panes, reader);
  panel.rectsOf = panel.owner ? rectFinder(panel.owner, 0, panel.count)
    : (buffer) => (buffer !== null && buffer < panel.count ? [buffer] : []);
  return panel;
}

function decodeDifference(raw, reader) {
  return { ...raw, bounds: reader.scaled(raw.bounds), base: reader.scaled(raw.base), head: reader.scaled(raw.head) };
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

/** Whether a message is the one before, byte for byte. */
export function sameBytes(message, before) {
  return before?.length === message.length && message.every((byte, i) => byte === before[i]);
}
