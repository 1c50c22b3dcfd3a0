// What the pointer is over: the cursor in every panel, and the tooltip beside it.

import { bandAt } from "../../../memplan_engine/plotting/frontend/bands.js";
import { ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { layerAt } from "./ribbon.js";
import { rectLines, spanLines, stepLines, swatchOf, Tooltip } from "./tooltip.js";

const NOWHERE = { hovered: null, step: -1 };

export class Pointing {
  constructor(chart) {
    this.chart = chart;
    this.tooltip = new Tooltip(chart.root);
    this.cursor = NOWHERE;
  }

  /** Forget what was pointed at. */
  clear() {
    this.cursor = NOWHERE;
    this.tooltip.hide();
  }

  leave() {
    this.clear();
    this.chart.drawOverlays();
  }

  /** The layer or the band under a point, or undefined. */
  spanAt(panel, point) {
    return layerAt(panel, point, this.chart.view) ?? bandAt(panel.data, panel.parts, panel.scales, point);
  }

  hover(panel, point) {
    const began = performance.now();
    const rect = panel.rectAt(point.x, point.y);
    const step = panel.stepAt(point.x);
    this.cursor = { hovered: rect < 0 ? null : ownerOf(panel.data, rect), step };
    this.last = [panel, point];
    this.chart.drawOverlays();
    this.chart.root.dataset.hoverMs = (performance.now() - began).toFixed(3);
    panel.stage.classList.toggle("on-rect", rect >= 0);
    const span = this.spanAt(panel, point);
    if (step < 0) this.tooltip.hide();
    else if (span) this.show(panel, point, spanLines(span));
    else this.tell(panel, point, rect, step);
  }

  /** Rectangles are numbered anew: point at what is there now. */
  again() {
    if (this.last && !this.tooltip.box.hidden) this.hover(...this.last);
  }

  tell(panel, point, rect, step) {
    const { panels, theme } = this.chart;
    if (rect < 0) this.show(panel, point, stepLines(panel, step));
    else this.show(panel, point, rectLines(panels, panel, rect, step), swatchOf(panel, rect, theme));
  }

  show(panel, point, lines, swatch) {
    const [outer, inner] = [this.chart.root.getBoundingClientRect(), panel.base.getBoundingClientRect()];
    const top = inner.top - outer.top;
    this.tooltip.show(lines, { x: point.x + inner.left - outer.left, y: point.y + top, top }, swatch);
  }

  /** The pointer is on the strip of differences: the same step everywhere. */
  point(strip, event, step, lines) {
    const [outer, inner] = [this.chart.root.getBoundingClientRect(), strip.base.getBoundingClientRect()];
    this.cursor = { hovered: null, step };
    this.chart.drawOverlays();
    const top = inner.top - outer.top;
    this.tooltip.show(lines, { x: event.offsetX + inner.left - outer.left, y: event.offsetY + top, top: 0 });
  }
}
