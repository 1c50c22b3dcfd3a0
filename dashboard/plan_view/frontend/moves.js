// From one view to the next.

import { panned, zoomed } from "../../../memplan_engine/plotting/frontend/viewport.js";
import { framing } from "./limits.js";

const ZOOM_STEP = 0.8;

export class Moves {
  constructor(chart) {
    this.chart = chart;
  }

  /** About a point of a panel, closer for factors below 1. */
  zoom(panel, point, factorX, factorY) {
    const { chart } = this;
    const at = { x: panel.scales.stepAt(point.x), y: panel.scales.bytesAt(point.y) };
    chart.look(zoomed(chart.view, chart.limits, at, factorX, factorY));
  }

  /** Closer or farther away, about the middle. */
  zoomBy(closer) {
    const [panel] = this.chart.panels;
    const { left, top, plotWidth, plotHeight } = panel.parts;
    const factor = closer ? ZOOM_STEP : 1 / ZOOM_STEP;
    this.zoom(panel, { x: left + plotWidth / 2, y: top + plotHeight / 2 }, factor, factor);
  }

  pan(panel, dx, dy) {
    const { chart } = this;
    const { stepWidth, byteHeight } = panel.scales;
    chart.look(panned(chart.view, chart.limits, -dx / stepWidth, dy / byteHeight));
  }

  /** Show what is selected, or what lies between the marked steps. */
  fit() {
    const span = this.chart.selection.span();
    if (span) this.chart.look(framing(this.chart.limits, span));
  }
}
