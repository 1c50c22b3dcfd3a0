// The tree beside the chart: what a step is made of, by module, source line, op or category.

import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "./element.js";
import { bytesAt, lineOf, minus, pathOf, sourceOf, treeOf } from "./holders.js";

const NAMES = { module: "module", function: "function", line: "line", op: "op", category: "category" };
const MOST_CHILDREN = 200;
/** How far the tree is open at first: as long as one child has most of it. */
const OPEN_SHARE = 0.5;
const KEYS = { ArrowDown: 1, ArrowUp: -1 };

export class PeakTree {
  constructor(parent, chart) {
    this.chart = chart;
    this.chosen = null;
    this.root = element("section", "peak-tree", parent);
    const head = element("div", "pane-head", this.root);
    this.title = element("h3", "pane-title", head);
    this.title.id = "plan-view-tree-title";
    this.switch = element("div", "segments", head);
    this.switch.setAttribute("role", "group");
    this.switch.setAttribute("aria-label", "Group by");
    this.body = element("div", "tree-rows", this.root);
    this.table = element("table", "tree-table", this.body);
    this.table.setAttribute("role", "treegrid");
    this.table.setAttribute("aria-labelledby", this.title.id);
    this.table.addEventListener("keydown", (event) => this.onKey(event));
    this.table.addEventListener("click", (event) => this.onClick(event));
  }

  /** Take another panel; what was open stays open where the groups are the same. */
  show(panel) {
    this.panel = panel;
    this.groupings = panel.panes.groupings;
    this.by = this.groupings.has(this.chosen) ? this.chosen : panel.panes.by;
    this.opened = null;
    this.switch.replaceChildren();
    this.switch.hidden = this.groupings.size < 2;
    // Without a choice of lines there is no more than one, as a rule none.
    this.table.classList.toggle("sourceless", !this.groupings.has("line"));
    for (const by of this.groupings.keys()) {
      const button = element("button", "segment", this.switch, NAMES[by]);
      button.type = "button";
      button.addEventListener("click", () => this.groupBy(by));
    }
    this.fill();
  }

  groupBy(by) {
    [this.chosen, this.by] = [by, by];
    this.opened = null;
    this.fill();
  }

  get grouping() {
    return this.groupings.get(this.by);
  }

  /** Count what is live at the marked step (that of the peak where none is), less what is at the second. */
  fill() {
    const began = performance.now();
    const { marks } = this.chart.kept;
    this.step = marks.step ?? this.panel.peakStep;
    const bytes = bytesAt(this.panel, this.step);
    const isDifference = marks.second !== null && marks.second !== undefined;
    const values = isDifference ? minus(bytesAt(this.panel, marks.second), bytes) : bytes;
    [this.signed, this.values] = [isDifference, values];
    this.tree = treeOf(this.grouping, values, isDifference ? 0 : this.panel.panes.always);
    this.opened ??= this.firstOpened();
    const label = this.panel.labelOf(this.step);
    this.title.textContent = isDifference ? `Step ${formatCount(marks.second)} minus step ${formatCount(this.step)}`
      : `${this.step === this.panel.peakStep ? `The ${this.panel.peakName}` : `Step ${formatCount(this.step)}`} is made of`;
    this.title.title = label;
    for (const button of this.switch.children) button.setAttribute("aria-pressed", button.textContent === NAMES[this.by]);
    this.draw();
    this.root.dataset.treeMs = (performance.now() - began).toFixed(1);
  }

  /** The bytes of the highest step. */
  bytesAtPeak() {
    const { panel } = this;
    return bytesAt(panel, panel.peakStep).reduce((sum, nbytes) => sum + nbytes, panel.panes.always);
  }

  /** The buffer that has most of the step, null where none has any. */
  get largest() {
    const { values } = this;
    let most = null;
    for (let buffer = 0; buffer < this.panel.buffers; buffer += 1) {
      if (values[buffer] > (most === null ? 0 : values[most])) most = buffer;
    }
    return most;
  }

  firstOpened() {
    const opened = new Set();
    for (let at = -1, bytes = this.tree.total; ;) {
      const [first] = this.tree.children(at);
      if (first?.group === undefined || first.bytes < OPEN_SHARE * bytes) return opened;
      opened.add(first.group);
      [at, bytes] = [first.group, first.bytes];
    }
  }

  draw() {
    const active = this.table.getRootNode().activeElement;
    const focused = this.table.contains(active) ? active.dataset.row : null;
    const body = document.createElement("tbody");
    this.append(body, -1, 1);
    this.table.replaceChildren(this.heading(), body);
    const rows = [...body.rows];
    (rows.find((row) => row.dataset.row === focused) ?? rows[0])?.setAttribute("tabindex", "0");
    if (focused) this.table.querySelector("[tabindex='0']")?.focus();
    this.mark(this.chart.kept.selected);
  }

  heading() {
    const head = document.createElement("thead");
    const row = element("tr", "", head);
    const size = this.signed ? "change" : "size";
    for (const [name, className] of [["name", ""], [this.signed ? "" : "share", "number"], [size, "number size"], ["made at", "made"]]) {
      const cell = element("th", className, row, name);
      cell.scope = "col";
    }
    return head;
  }

  append(body, group, level) {
    const children = this.tree.children(group);
    for (const child of children.slice(0, MOST_CHILDREN)) {
      this.appendRow(body, child, level);
      if (child.group !== undefined && this.opened.has(child.group)) this.append(body, child.group, level + 1);
    }
    const rest = children.slice(MOST_CHILDREN);
    if (rest.length === 0) return;
    const bytes = rest.reduce((sum, child) => sum + child.bytes, 0);
    this.cells(element("tr", "rest", body), `and ${formatCount(rest.length)} more`, bytes, level);
  }

  appendRow(body, child, level) {
    const isGroup = child.group !== undefined;
    const row = element("tr", isGroup ? "group" : "leaf", body);
    row.dataset.row = isGroup ? `g${child.group}` : `h${child.holder ?? ""}`;
    row.tabIndex = -1;
    row.setAttribute("aria-level", level);
    if (isGroup) row.setAttribute("aria-expanded", this.opened.has(child.group));
    this.cells(row, this.labelOf(child), child.bytes, level, isGroup ? undefined : child.holder);
  }

  labelOf(child) {
    if (child.always) return "unique workspaces";
    return child.group === undefined ? this.grouping.leaf(child.holder) : this.grouping.label(child.group);
  }

  /** `holder` is the buffer of a leaf: its bar has the colour of its rectangle, and it was made somewhere. */
  cells(row, label, bytes, level, holder) {
    const name = element("td", "name", row);
    name.style.setProperty("--level", level - 1);
    element("span", "twist", name);
    element("span", "label", name, label).title = label;
    const share = element("td", "number share", row);
    const part = this.tree.total ? bytes / this.tree.total : 0;
    if (!this.signed) {
      const bar = element("span", "bar", share);
      bar.style.setProperty("--share", Math.max(0, Math.min(1, part)));
      const [rect] = this.panel.rectsOf(holder ?? null);
      if (rect !== undefined) bar.style.setProperty("--color", `var(--shade-${this.panel.color[rect]})`);
      element("span", "percent", share, `${(100 * part).toFixed(1)} %`);
    }
    const sign = !this.signed || bytes === 0 ? "" : bytes > 0 ? "+" : "−";
    const size = Math.abs(bytes);
    element("td", "number size", row, sign + formatBytes(size)).title = `${sign}${formatCount(size)} B`;
    const source = holder === undefined ? "" : sourceOf(this.panel, holder);
    element("td", "made", row, lineOf(source)).title = source;
  }

  /** The row of the buffer that is selected. */
  mark(buffer) {
    const { body } = this;
    for (const row of body.querySelectorAll("tr[aria-selected]")) row.removeAttribute("aria-selected");
    if (buffer === null || buffer === undefined) return;
    const row = body.querySelector(`tr[data-row="h${buffer}"]`);
    if (!row) return;
    row.setAttribute("aria-selected", "true");
    const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    if (top < body.scrollTop) body.scrollTop = top;
    else if (bottom > body.scrollTop + body.clientHeight) body.scrollTop = bottom - body.clientHeight;
  }

  /** Open what a buffer lies in, so that its row is there. */
  reveal(buffer) {
    if (buffer !== null) {
      const closed = pathOf(this.grouping, buffer).filter((group) => !this.opened.has(group));
      closed.forEach((group) => this.opened.add(group));
      if (closed.length > 0) this.draw();
    }
    this.mark(buffer);
  }

  onClick(event) {
    const row = event.target.closest("tr[data-row]");
    if (row) this.act(row.dataset.row);
  }

  act(name) {
    const id = Number(name.slice(1));
    if (name.startsWith("g")) this.toggle(id);
    else if (name !== "h") this.pick(id);
  }

  toggle(group, open = !this.opened.has(group)) {
    if (open === this.opened.has(group)) return;
    if (open) this.opened.add(group);
    else this.opened.delete(group);
    this.draw();
  }

  pick(holder) {
    if (holder < this.panel.buffers) this.chart.selection.goTo(holder);
  }

  onKey(event) {
    const row = event.target.closest("tr[data-row]");
    if (!row) return;
    const group = row.classList.contains("group") ? Number(row.dataset.row.slice(1)) : null;
    if (KEYS[event.key]) {
      const rows = [...this.table.querySelectorAll("tr[data-row]")];
      const next = rows[rows.indexOf(row) + KEYS[event.key]];
      if (next) {
        row.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    } else if (event.key === "ArrowRight" && group !== null) this.toggle(group, true);
    else if (event.key === "ArrowLeft" && group !== null) this.toggle(group, false);
    else if (event.key === "Enter" || event.key === " ") this.act(row.dataset.row);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
