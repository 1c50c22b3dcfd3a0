// The chart: its panels, what they share (view, selection, cursor), and when they are drawn.

import { readTheme } from "./color.js";
import { panned, zoomed } from "../../../memplan_engine/plotting/frontend/viewport.js";
import { ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { decode, sameBytes } from "./decode.js";
import { DifferenceStrip } from "./difference.js";
import { showFilters } from "./filters.js";
import { HINT, listen } from "./gestures.js";
import { element } from "./element.js";
import { arrange, SECOND_ROW } from "./layout.js";
import { layered } from "./layers.js";
import { fillLegend } from "./legend.js";
import { firstChoice, neighbour } from "./neighbours.js";
import { drawOverlay } from "./overlay.js";
import { PanelView } from "./panel.js";
import { recall } from "./recall.js";
import { rectLines, spoken, stepLines, swatchOf, Tooltip } from "./tooltip.js";
import { limitsOf, revealing } from "./limits.js";
import { Windows } from "./windows.js";

const MAX_RATIO = 2;
const STACKED = 300;
const KEY_PAUSE = 180;

export class Chart {
  /** `memory` keeps view and selection by key, for a chart that Streamlit takes down and puts up again. */
  constructor(parent, memory) {
    this.memory = memory;
    this.panels = [];
    this.kept = null;
    this.windows = new Windows(this);
    this.buildPage(parent);
    this.observer = new ResizeObserver(() => this.relayout());
    this.observer.observe(this.root);
    document.fonts.ready.then(() => this.redraw());
  }

  buildPage(parent) {
    this.root = element("div", "plan-view", parent);
    this.grid = element("div", "panels", this.root);
    this.difference = new DifferenceStrip(this.root, this);
    this.legend = element("ul", "legend", this.root);
    this.hint = element("p", "hint", this.root, HINT);
    this.hint.id = "plan-view-hint";
    this.announcer = element("p", "spoken", this.root);
    this.announcer.setAttribute("aria-live", "polite");
    this.tooltip = new Tooltip(this.root);
  }

  /** Take new data (or the same again, as on every rerun or change of theme). */
  update(message, send, trigger) {
    const began = performance.now();
    this.send = send;
    this.trigger = trigger;
    const fresh = message !== this.message && !sameBytes(message, this.message);
    if (fresh) this.accept(decode(message));
    this.message = message;
    const theme = { ...readTheme(this.root, this.header.palette), patterns: this.header.patterns };
    if (!fresh && JSON.stringify(theme) === JSON.stringify(this.theme)) return;
    this.theme = theme;
    fillLegend(this.legend, this.header.legend, this.panels.map((panel) => panel.data), this.theme);
    if (this.header.filters) {
      showFilters(this.legend, this.header.filters, this.header.patterns, theme,
        (label) => this.trigger("filter", { label }));
    }
    this.relayout();
    this.draw();
    this.root.dataset.loadMs = (performance.now() - began).toFixed(1);
  }

  accept({ header, panels, difference }) {
    this.header = header;
    this.say = null;
    this.difference.show(difference);
    while (this.panels.length > panels.length) this.panels.pop().figure.remove();
    while (this.panels.length < panels.length) {
      const panel = new PanelView(this.grid, this.hint.id);
      listen(panel, this);
      this.panels.push(panel);
    }
    panels.forEach((data, i) => this.panels[i].show(data.view ? layered(data, null) : data));
    this.limits = limitsOf(panels);
    this.kept = recall(this.memory, header, this.limits, this.panels);
    this.cursor = { hovered: null, step: -1 };
    this.tooltip.hide();
    this.size = "";
    this.windows.attach(header);
  }

  /** The server has answered: draw with it (rectangles are numbered anew), and say what was said without it. */
  told() {
    this.draw();
    this.say?.();
    if (this.pointed && !this.tooltip.box.hidden) this.hover(...this.pointed);
  }

  get view() {
    return this.kept.view ?? this.limits;
  }

  relayout() {
    if (!this.header) return;
    const width = this.root.clientWidth;
    const ratio = Math.min(MAX_RATIO, window.devicePixelRatio || 1);
    const size = `${width} ${ratio} ${this.panels.length} ${this.header.height} ${this.difference.figure.hidden}`;
    if (width === 0 || size === this.size) return;
    this.size = size;
    const plan = arrange(this.panels.length, width);
    const height = Math.round(this.header.height * (plan.rows > 1 ? SECOND_ROW : 1));
    this.grid.style.gridTemplateColumns = plan.columns.map((column) => `${column}px`).join(" ");
    this.grid.style.columnGap = `${plan.spacing}px`;
    this.root.classList.toggle("stacked", width / plan.columns.length < STACKED);
    this.panels.forEach((panel, i) => {
      panel.figure.style.setProperty("--gutter", `${plan.gutterOf(i)}px`);
      panel.resize(plan.columns[i % plan.columns.length], height, plan.gutterOf(i), ratio);
    });
    this.difference.resize(width, plan.gutterOf(0), ratio);
    this.redraw();
  }

  /** Draw before the next frame, once however often it is asked for. */
  redraw() {
    if (this.waiting || !this.header) return;
    this.waiting = requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    if (!this.size) return;
    const [began, sharp] = [performance.now(), this.windows.look()];
    let drawn = 0;
    for (const panel of this.panels) {
      panel.stage.dataset.drawn = panel.draw(this.view, this.limits, this.theme);
      drawn += Number(panel.stage.dataset.drawn);
    }
    this.difference.draw(this.view, this.theme);
    this.drawOverlays();
    const { x0, x1, y0, y1 } = this.view;
    Object.assign(this.root.dataset, {
      drawn,
      drawMs: (performance.now() - began).toFixed(1),
      view: [x0, x1, y0, y1].map((value) => value.toFixed(2)).join(),
      zoomed: this.kept.view !== null,
      sharp,
      selected: this.kept.selected ?? "",
    });
  }

  drawOverlays() {
    const state = { ...this.cursor, selected: this.kept.selected };
    this.windows.want(state.hovered ?? state.selected);
    for (const panel of this.panels) drawOverlay(panel, state, this.theme);
    this.difference.drawCursor(this.cursor.step, this.theme);
  }

  // What the gestures ask for.
  zoom(panel, point, factorX, factorY) {
    const at = { x: panel.scales.stepAt(point.x), y: panel.scales.bytesAt(point.y) };
    this.look(zoomed(this.view, this.limits, at, factorX, factorY));
  }

  pan(panel, dx, dy) {
    const { stepWidth, byteHeight } = panel.scales;
    this.look(panned(this.view, this.limits, -dx / stepWidth, dy / byteHeight));
  }

  reset() { this.look(null); }

  look(view) {
    this.kept.view = view;
    this.tooltip.hide();
    this.redraw();
  }

  hover(panel, point) {
    const began = performance.now();
    const rect = panel.rectAt(point.x, point.y);
    const step = panel.stepAt(point.x);
    this.cursor = { hovered: rect < 0 ? null : ownerOf(panel.data, rect), step };
    this.pointed = [panel, point];
    this.drawOverlays();
    this.root.dataset.hoverMs = (performance.now() - began).toFixed(3);
    panel.stage.classList.toggle("on-rect", rect >= 0);
    if (step < 0) this.tooltip.hide();
    else this.tell(panel, point, rect, step);
  }

  tell(panel, point, rect, step) {
    const [outer, inner] = [this.root.getBoundingClientRect(), panel.base.getBoundingClientRect()];
    const top = inner.top - outer.top;
    const place = { x: point.x + inner.left - outer.left, y: point.y + top, top };
    if (rect < 0) this.tooltip.show(stepLines(panel, step), place);
    else this.tooltip.show(rectLines(this.panels, panel, rect, step), place, swatchOf(panel, rect, this.theme));
  }

  /** The pointer is on the strip of differences: the same step everywhere. */
  point(strip, event, step, lines) {
    const [outer, inner] = [this.root.getBoundingClientRect(), strip.base.getBoundingClientRect()];
    this.cursor = { hovered: null, step };
    this.drawOverlays();
    const top = inner.top - outer.top;
    this.tooltip.show(lines, { x: event.offsetX + inner.left - outer.left, y: event.offsetY + top, top: 0 });
  }

  leave() {
    this.cursor = { hovered: null, step: -1 };
    this.tooltip.hide();
    this.drawOverlays();
  }

  click(panel, point) {
    if (point.y < panel.parts.bottom) this.select(panel, panel.rectAt(point.x, point.y), 0);
  }

  step(panel, direction) {
    const at = panel.data.rectsOf(this.kept.selected)[0];
    const next = at === undefined ? firstChoice(panel.data) : neighbour(panel.data, at, direction);
    if (next < 0) return;
    const { start, end, offset, size } = panel.data;
    const [y0, y1] = [offset[next], offset[next] + size[next]];
    if (this.kept.view) this.look(revealing(this.view, this.limits, { x0: start[next], x1: end[next], y0, y1 }));
    this.select(panel, next, KEY_PAUSE);
  }

  deselect() { this.select(null, -1, 0); }

  /** Select a rectangle's buffer and say so to Python, after a pause where more keys may follow. */
  select(panel, rect, pause) {
    const buffer = rect < 0 ? null : ownerOf(panel.data, rect);
    if (buffer === this.kept.selected) return;
    this.kept.selected = buffer;
    this.root.dataset.selected = buffer ?? "";
    const words = () => (rect < 0 ? "Nothing selected." : spoken(panel, panel.data.rectsOf(buffer)[0]));
    this.say = () => { this.announcer.textContent = words(); };
    this.say();
    this.drawOverlays();
    clearTimeout(this.report);
    this.report = setTimeout(() => this.send("selection", { index: buffer, serial: this.kept.serial }), pause);
  }

  dispose() {
    this.observer.disconnect();
    this.windows.detach();
    clearTimeout(this.report);
    cancelAnimationFrame(this.waiting);
    this.root.remove();
  }
}
