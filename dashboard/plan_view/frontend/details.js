// Everything about the buffer that is selected: what it is, who makes it, who reads it and who reads it last.

import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { element } from "./element.js";
import { lineOf, lifetimeWords } from "./holders.js";

const NOBODY = -1;
const MOST_LINKS = 12;
/** Characters that half the width of the pane has room for. */
const SHORT = 30;

export class Details {
  constructor(parent, chart) {
    this.chart = chart;
    this.root = element("section", "details", parent);
    this.root.setAttribute("aria-live", "polite");
  }

  /** `note` says why it is this buffer, where nobody selected it. */
  show(panel, buffer, note = "") {
    this.panel = panel;
    this.root.replaceChildren();
    if (buffer === null || !panel.rectsOf(buffer).length) {
      element("p", "pane-note", this.root, "Click a rectangle or a row for its shape, lifetime, producer and readers.");
      return;
    }
    this.head(buffer, note);
    this.facts(buffer);
    this.links(buffer);
  }

  head(buffer, note) {
    const { panes } = this.panel;
    const head = element("div", "pane-head", this.root);
    const title = element("h3", "pane-title", head, this.panel.nameOf(buffer));
    const own = panes.ownName(buffer);
    if (own !== this.panel.nameOf(buffer)) element("span", "own-name", title, ` ${own}`);
    if (note) element("span", "pane-note", head, note);
    this.actions(head, buffer);
  }

  facts(buffer) {
    const { panel } = this;
    const rects = panel.rectsOf(buffer);
    const [start, end] = [Math.min(...rects.map((rect) => panel.start[rect])), Math.max(...rects.map((rect) => panel.end[rect]))];
    const low = Math.min(...rects.map((rect) => panel.offset[rect]));
    const high = Math.max(...rects.map((rect) => panel.offset[rect] + panel.size[rect]));
    const list = element("dl", "facts", this.root);
    const fact = (label, value) => {
      if (!value) return;
      const width = value.length > SHORT ? "long" : "";
      element("dt", width, list, label);
      element("dd", width, list, value);
    };
    fact("shape", panel.panes.tensor(buffer));
    fact("bytes", `${formatCount(high - low)} (${formatBytes(high - low)})`);
    fact("lifetime", lifetimeWords(start, end) + (rects.length > 1 ? `, ${rects.length} pieces` : ""));
    fact("offset", `${formatCount(low)} (${formatBytes(low)})`);
    fact("kind", panel.panes.kind(buffer));
    const maker = panel.panes.maker[buffer];
    if (maker !== NOBODY) for (const [label, text] of panel.panes.ops.properties) fact(label, text(maker));
    fact("allocated at", panel.panes.place(buffer));
    const { above, below } = neighboursOf(panel, rects, low, high);
    fact("above", above);
    fact("below", below);
  }

  links(buffer) {
    const { panes } = this.panel;
    const maker = panes.maker[buffer];
    const list = element("dl", "ops", this.root);
    const readers = [...panes.readersOf(buffer)];
    if (maker !== NOBODY) {
      this.row(list, "producer", [maker]);
      this.buffers(list, "reads", panes.ops.inputsOf(maker));
    }
    const last = readers.reduce((most, op) => (most === null || panes.ops.step[op] > panes.ops.step[most] ? op : most), null);
    if (last !== null) this.row(list, "last reader", [last]);
    this.row(list, "other readers", readers.filter((op) => op !== last));
    const code = maker === NOBODY ? "" : panes.ops.code(maker);
    if (code) element("code", "code", this.root, code);
    const stack = panes.stackOf(buffer);
    if (stack.length === 0) return;
    element("p", "pane-note", this.root, "call stack, innermost call first");
    element("code", "code", this.root, stack.join("\n"));
  }

  /** A row of ops, each with the line that it comes from; a click goes to what it makes, or to its step. */
  row(list, label, ops) {
    if (ops.length === 0) return;
    const { ops: all } = this.panel.panes;
    element("dt", "", list, label);
    const value = element("dd", "", list);
    for (const op of ops.slice(0, MOST_LINKS)) {
      const line = element("div", "op", value);
      this.link(line, all.name(op), () => this.go(op), `step ${formatCount(all.step[op])} · ${all.ownName(op)}`);
      element("span", "source", line, lineOf(all.source(op))).title = all.source(op);
    }
    if (ops.length > MOST_LINKS) element("div", "op", value, `and ${formatCount(ops.length - MOST_LINKS)} more`);
  }

  buffers(list, label, buffers) {
    if (buffers.length === 0) return;
    element("dt", "", list, label);
    const value = element("dd", "", list);
    for (const buffer of buffers.slice(0, MOST_LINKS)) {
      this.link(element("div", "op", value), this.panel.nameOf(buffer), () => this.chart.selection.goTo(buffer), "");
    }
  }

  link(parent, text, go, title) {
    const button = element("button", "link", parent, text);
    button.type = "button";
    button.title = title;
    button.addEventListener("click", go);
  }

  go(op) {
    const { ops } = this.panel.panes;
    const { selection } = this.chart;
    if (ops.makes[op] === NOBODY) selection.mark(ops.step[op]);
    else selection.goTo(ops.makes[op]);
  }

  /** What Python does: it hears the name of the action and the buffer. */
  actions(parent, buffer) {
    const names = this.chart.header.actions ?? [];
    if (names.length === 0) return;
    const row = element("div", "actions", parent);
    for (const [name, label, help] of names) {
      const button = element("button", "action", row, label);
      button.type = "button";
      button.title = help;
      button.addEventListener("click", () => this.chart.trigger("action", { name, buffer }));
    }
  }
}

/** What lies next to the bytes [low, high) while the rectangles of a buffer live: in words. */
function neighboursOf(panel, rects, low, high) {
  const meets = (rect) => rects.some((own) => panel.start[rect] < panel.end[own] && panel.start[own] < panel.end[rect]);
  const near = { above: [Infinity, -1], below: [Infinity, -1] };
  for (let rect = 0; rect < panel.count; rect += 1) {
    const [bottom, top] = [panel.offset[rect], panel.offset[rect] + panel.size[rect]];
    const [side, room] = bottom >= high ? ["above", bottom - high] : ["below", low - top];
    if (room >= 0 && room < near[side][0] && panel.size[rect] > 0 && meets(rect)) near[side] = [room, rect];
  }
  const words = ([room, rect]) => (rect < 0 ? ""
    : `${panel.nameOf(ownerOf(panel, rect))}, ${room > 0 ? `${formatBytes(room)} between` : "adjacent"}`);
  return { above: words(near.above), below: words(near.below) };
}
