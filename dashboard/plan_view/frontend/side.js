// The panes beside the chart: the tree of a step, and the buffer that is selected.

import { element } from "./element.js";
import { Details } from "./details.js";
import { PeakTree } from "./peak_tree.js";
import { TiedPeaks } from "./tied_peaks.js";

export class Side {
  constructor(chart) {
    this.chart = chart;
    this.root = element("div", "side", chart.root);
    this.root.hidden = true;
    this.tree = new PeakTree(this.root, chart);
    this.ties = new TiedPeaks(this.root, chart);
    this.details = new Details(this.root, chart);
    chart.on("data", (panels) => this.show(panels[0].data));
    chart.on("step", () => this.mark());
    chart.on("select", (buffer) => this.select(buffer));
  }

  show(panel) {
    this.panel = panel;
    const has = this.chart.panels.length === 1 && Boolean(panel.panes);
    this.root.hidden = !has;
    this.chart.root.classList.toggle("with-side", has);
    if (!has) return;
    this.tree.show(panel);
    this.ties.show(panel, this.tree.bytesAtPeak());
    this.ties.mark(this.tree.step);
    this.select(this.chart.kept.selected);
  }

  /** Another step is marked. */
  mark() {
    if (this.root.hidden) return;
    this.tree.fill();
    this.ties.mark(this.tree.step);
    this.select(this.chart.kept.selected);
  }

  select(buffer) {
    if (this.root.hidden) return;
    this.tree.reveal(buffer);
    const largest = buffer === null ? this.tree.largest : null;
    this.details.show(this.panel, buffer ?? largest, largest === null ? "" : "largest at this step");
  }
}
