// The chart: its panels, what they share (view, selection, cursor), and when they are drawn.

import { Address } from "./address.js";
import { readTheme } from "./color.js";
import { ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { decode, sameBytes } from "./decode.js";
import { DifferenceStrip } from "./difference.js";
import { showFilters } from "./filters.js";
import { HINT, listen } from "./gestures.js";
import { element } from "./element.js";
import { heightOfBands } from "../../../memplan_engine/plotting/frontend/bands.js";
import { arrange, SECOND_ROW } from "./layout.js";
import { layered } from "./layers.js";
import { Legend } from "./legend.js";
import { Listeners } from "./listeners.js";
import { drawOverlay } from "./overlay.js";
import { Measuring } from "./measuring.js";
import { Minimap } from "./minimap.js";
import { Moves } from "./moves.js";
import { PanelView } from "./panel.js";
import { recall } from "./recall.js";
import { layerAt } from "./ribbon.js";
import { framing, limitsOf } from "./limits.js";
import { Pointing } from "./pointing.js";
import { Selection } from "./selection.js";
import { Side } from "./side.js";
import { Toolbar } from "./toolbar.js";
import { Windows } from "./windows.js";

const MAX_RATIO = 2;
const STACKED = 300;
const SNUG = 1.2;
/** Below it names no longer fit beside what they name. */
const LEAST = 200;

export class Chart {
  /** `memory` keeps view and selection by key, for a chart that Streamlit takes down and puts up again. */
  constructor(parent, memory) {
    this.memory = memory;
    this.panels = [];
    this.kept = null;
    this.windows = new Windows(this);
    this.listeners = new Listeners();
    this.selection = new Selection(this);
    this.moves = new Moves(this);
    this.measuring = new Measuring(this);
    this.address = new Address(this);
    this.buildPage(parent);
    this.observer = new ResizeObserver(() => this.relayout());
    this.observer.observe(this.column);
    this.observer.observe(this.root);
    document.fonts.ready.then(() => this.redraw());
  }

  buildPage(parent) {
    this.root = element("div", "plan-view", parent);
    // What stands beside the column, as another child of the root, is told of everything by `on`.
    this.column = element("div", "column", this.root);
    this.toolbar = new Toolbar(this.column, this);
    this.grid = element("div", "panels", this.column);
    this.minimap = new Minimap(this.column, this);
    this.difference = new DifferenceStrip(this.column, this);
    this.legend = new Legend(this.column, this);
    this.hint = element("p", "hint", this.column, HINT);
    this.hint.id = "plan-view-hint";
    this.announcer = element("p", "spoken", this.root);
    this.announcer.setAttribute("aria-live", "polite");
    this.pointing = new Pointing(this);
    this.side = new Side(this);
  }

  /** Hear of what the reader does: "select" brings a buffer or null, "step" {step, second}, "view" the view or
   * null for everything, "data" the panels that are shown from now on. Returns what ends that. */
  on(name, hear) { return this.listeners.on(name, hear); }

  /** Take new data (or the same again, as on every rerun or change of theme). */
  update(message, send, trigger) {
    const began = performance.now();
    this.send = send;
    this.trigger = trigger;
    const fresh = message !== this.message && !sameBytes(message, this.message);
    if (fresh) this.accept(decode(message));
    this.address.later();
    this.message = message;
    const theme = { ...readTheme(this.root, this.header.palette), patterns: this.header.patterns };
    const look = JSON.stringify(theme);
    if (!fresh && look === this.themeText) return;
    [this.bright, this.themeText] = [theme, look];
    this.legend.fill(this.header.legend, this.panels.map((panel) => panel.data), theme);
    if (this.header.filters) {
      showFilters(this.legend.list, this.header.filters, this.header.patterns, theme,
        (label) => this.trigger("filter", { label }));
    }
    this.recolor();
    this.relayout();
    this.draw();
    this.root.dataset.loadMs = (performance.now() - began).toFixed(1);
  }

  /** Draw with the colours that the legend leaves bright. */
  recolor() {
    const searched = Boolean(this.header.find?.pattern);
    this.header.palette.forEach((_, i) => this.root.style.setProperty(`--shade-${i}`, this.bright.shades[i].css));
    this.theme = { ...this.bright, searched, shades: this.legend.shades(this.bright.shades) };
    this.redraw();
  }

  accept({ header, panels, difference }) {
    this.header = header;
    this.selection.say = null;
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
    this.pointing.clear();
    this.size = "";
    this.windows.attach(header);
    this.toolbar.find.show(header.find, panels[0]);
    this.tell("data", this.panels);
  }

  /** The server has answered: draw with it (rectangles are numbered anew), and say what was said without it. */
  told() {
    this.draw();
    this.selection.say?.();
    this.pointing.again();
  }

  get view() {
    return this.kept.view ?? this.limits;
  }

  /** The height of a row of panels: as given, or, where the page gives the whole chart one, what is left of it. */
  get room() {
    if (!getComputedStyle(this.root).getPropertyValue("--chart-height")) return this.header.height;
    const drawn = this.panels[0].stage.offsetHeight;
    return Math.max(LEAST, this.root.clientHeight - (this.column.offsetHeight - drawn));
  }

  relayout() {
    if (!this.header) return;
    const width = this.column.clientWidth;
    const ratio = Math.min(MAX_RATIO, window.devicePixelRatio || 1);
    const room = this.room;
    const size = `${width} ${ratio} ${this.panels.length} ${room} ${this.difference.figure.hidden}`;
    if (width === 0 || size === this.size) return;
    this.size = size;
    const plan = arrange(this.panels.length, width);
    const height = Math.round(room * (plan.rows > 1 ? SECOND_ROW : 1));
    this.grid.style.gridTemplateColumns = plan.columns.map((column) => `${column}px`).join(" ");
    this.grid.style.columnGap = `${plan.spacing}px`;
    this.root.classList.toggle("stacked", width / plan.columns.length < STACKED);
    const bands = Math.max(...this.panels.map(({ data }) => heightOfBands(data.bands)));
    this.panels.forEach((panel, i) => {
      panel.figure.style.setProperty("--gutter", `${plan.gutterOf(i)}px`);
      panel.resize(plan.columns[i % plan.columns.length], height, plan.gutterOf(i), ratio, bands);
    });
    this.minimap.resize(width, ratio);
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
    this.minimap.draw(this.theme);
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
    const state = { ...this.pointing.cursor, selected: this.kept.selected, marks: this.kept.marks, measured: this.measuring.box };
    this.windows.want(state.hovered ?? state.selected);
    for (const panel of this.panels) drawOverlay(panel, state, this.theme);
    this.root.dataset.marks = [state.marks.step ?? "", state.marks.second ?? ""].join();
    this.difference.drawCursor(this.pointing.cursor.step, this.theme);
  }

  // What the gestures ask for.
  reset() { this.look(null); }

  look(view) {
    this.kept.view = view;
    this.pointing.tooltip.hide();
    this.redraw();
    this.tell("view", view);
  }

  click(panel, point) {
    const span = this.pointing.spanAt(panel, point);
    if (span) this.look(framing(this.limits, { ...this.view, x0: span.start, x1: span.end }, SNUG));
    else if (point.y < panel.parts.bottom) this.select(panel, panel.rectAt(point.x, point.y), 0);
  }

  /** Mark the step under a point below the plot; whether it is there. */
  scrub(panel, point, isSecond) {
    if (point.y < panel.parts.bottom || panel.data.steps === 0 || layerAt(panel, point, this.view)) return false;
    const step = Math.floor(panel.scales.stepAt(point.x));
    this.selection.mark(Math.max(0, Math.min(panel.data.steps - 1, step)), isSecond);
    return true;
  }

  /** Select a rectangle's buffer, after a pause where more keys may follow. */
  select(panel, rect, pause) {
    this.selection.choose(rect < 0 ? null : ownerOf(panel.data, rect), panel, pause);
  }

  announce(words) { this.announcer.textContent = words; }

  tell(name, value) { this.listeners.tell(name, value); }

  dispose() {
    this.observer.disconnect();
    this.windows.detach();
    this.selection.end();
    this.address.end();
    cancelAnimationFrame(this.waiting);
    this.root.remove();
  }
}
