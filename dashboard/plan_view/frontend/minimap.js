// The whole profile below the chart, with a window on what is in view: it can be moved, resized and drawn anew.

import { formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { columnMaxima } from "../../../memplan_engine/plotting/frontend/strip.js";
import { panned } from "../../../memplan_engine/plotting/frontend/viewport.js";
import { element } from "./element.js";

const MAP_HEIGHT = 36;
const GRIP = 7;
const FEWEST = 4;

export class Minimap {
  constructor(parent, chart) {
    this.chart = chart;
    this.canvas = element("canvas", "minimap", parent);
    // From the first, for the chart takes what is left.
    this.canvas.height = MAP_HEIGHT;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "All steps; the window marks those in view");
    this.listen();
  }

  resize(width, ratio) {
    const { panels } = this.chart;
    this.canvas.hidden = panels.length > 1;
    this.ratio = ratio;
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(MAP_HEIGHT * ratio)];
    [this.canvas.style.width, this.canvas.style.height] = [`${width}px`, `${MAP_HEIGHT}px`];
    this.shape = null;
  }

  get parts() {
    return this.chart.panels[0].parts;
  }

  xOf(step) {
    const { left, plotWidth } = this.parts;
    return left + (step / this.chart.limits.x1) * plotWidth;
  }

  stepAt(x) {
    const { left, plotWidth } = this.parts;
    return ((x - left) / plotWidth) * this.chart.limits.x1;
  }

  draw(theme) {
    if (this.canvas.hidden) return;
    const { chart, parts, ratio } = this;
    const ctx = this.canvas.getContext("2d");
    const right = parts.left + parts.plotWidth;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, right + 2, MAP_HEIGHT);
    ctx.font = `400 11px ${theme.font}`;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.fillStyle = theme.muted;
    ctx.fillText(`all ${formatCount(chart.limits.x1)}`, parts.left - 8, MAP_HEIGHT / 2);
    ctx.fillStyle = theme.live;
    ctx.fill(this.profile());
    const [from, to] = [this.xOf(chart.view.x0), this.xOf(chart.view.x1)];
    ctx.fillStyle = theme.veil;
    ctx.fillRect(parts.left, 0, from - parts.left, MAP_HEIGHT);
    ctx.fillRect(to, 0, right - to, MAP_HEIGHT);
    ctx.strokeStyle = theme.axis;
    ctx.lineWidth = 1;
    ctx.strokeRect(parts.left + 0.5, 0.5, parts.plotWidth - 1, MAP_HEIGHT - 1);
    if (chart.kept.view) this.drawWindow(ctx, from, to, theme);
  }

  drawWindow(ctx, from, to, theme) {
    ctx.strokeStyle = theme.mark;
    ctx.lineWidth = 2;
    ctx.strokeRect(from + 1, 1, Math.max(2, to - from - 2), MAP_HEIGHT - 2);
    ctx.fillStyle = theme.mark;
    for (const x of [from, to]) ctx.fillRect(x - 2.5, MAP_HEIGHT / 2 - 6, 5, 12);
  }

  /** The outline of what lives, made once for a size of the canvas and the plan. */
  profile() {
    const { chart, parts, ratio } = this;
    const { data } = chart.panels[0];
    const whole = data.far ?? data;
    if (this.shape && this.of === whole) return this.shape;
    const { live } = columnMaxima(whole, { x0: 0, x1: chart.limits.x1 }, Math.round(parts.plotWidth * ratio));
    const most = live.reduce((high, bytes) => Math.max(high, bytes), 1);
    this.of = whole;
    this.shape = new Path2D();
    live.forEach((bytes, column) => {
      const high = (bytes / most) * (MAP_HEIGHT - 4);
      this.shape.rect(parts.left + column / ratio, MAP_HEIGHT - high, 1 / ratio + 0.2, high);
    });
    return this.shape;
  }

  listen() {
    let drag = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.chart.header) return;
      drag = this.grab(event.offsetX);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (drag) drag(event.offsetX);
      else this.canvas.style.cursor = this.cursorAt(event.offsetX);
    });
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => { drag = null; });
    this.canvas.addEventListener("dblclick", () => this.chart.reset());
  }

  /** What a place of the window is for: "from" and "to" its edges, "all" to move it, "" for a new one. */
  placeAt(x) {
    const { kept, view } = this.chart;
    const [from, to] = [this.xOf(view.x0), this.xOf(view.x1)];
    if (!kept.view) return "";
    if (Math.abs(x - from) <= GRIP) return "from";
    if (Math.abs(x - to) <= GRIP) return "to";
    return x > from && x < to && (view.x0 > 0 || view.x1 < this.chart.limits.x1) ? "all" : "";
  }

  cursorAt(x) {
    return { from: "ew-resize", to: "ew-resize", all: "grab", "": "crosshair" }[this.placeAt(x)];
  }

  /** What a press at `x` does while the pointer moves. */
  grab(x) {
    const { view } = this.chart;
    const [place, at] = [this.placeAt(x), this.stepAt(x)];
    if (place === "from") return (now) => this.frame(this.stepAt(now), view.x1);
    if (place === "to") return (now) => this.frame(view.x0, this.stepAt(now));
    if (place === "all") return (now) => this.chart.look(panned(view, this.chart.limits, this.stepAt(now) - at, 0));
    return (now) => { if (Math.abs(now - x) > GRIP) this.frame(at, this.stepAt(now)); };
  }

  /** Look at the steps between two, in any order. */
  frame(one, other) {
    const { chart } = this;
    const last = chart.limits.x1;
    const [from, to] = [Math.max(0, Math.min(one, other)), Math.min(last, Math.max(one, other))];
    const x1 = Math.min(last, Math.max(to, from + Math.min(last, FEWEST)));
    chart.look(panned({ ...chart.view, x0: Math.min(from, x1 - Math.min(last, FEWEST)), x1 }, chart.limits, 0, 0));
  }
}
