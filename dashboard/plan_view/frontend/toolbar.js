// The row above the chart: everything that pointer and keys do, as buttons.

import { element } from "./element.js";
import { Find } from "./find.js";
import { KeyMap } from "./key_map.js";

const CONFIRMED = 1600;

export class Toolbar {
  constructor(parent, chart) {
    this.chart = chart;
    this.bar = element("div", "toolbar", parent);
    this.bar.setAttribute("role", "toolbar");
    this.bar.setAttribute("aria-label", "Chart");
    this.keys = new KeyMap(chart.root);
    this.find = new Find(this.bar, chart);
    element("span", "space", this.bar);
    this.button("+", "Zoom in", () => chart.moves.zoomBy(true));
    this.button("−", "Zoom out", () => chart.moves.zoomBy(false));
    this.fit = this.button("Zoom", "Zoom to the selection (f)", () => chart.moves.fit());
    this.reset = this.button("Reset", "Show everything (0)", () => chart.reset());
    this.measure = this.button("Measure", "Measure bytes × steps with a drag (m)", () => chart.measuring.toggle());
    this.link = this.button("Link", "Copy the address of what is shown", () => this.copy());
    this.button("?", "Keys", () => this.keys.open());
    for (const name of ["select", "step", "view", "data", "measure"]) chart.on(name, () => this.refresh());
  }

  button(text, label, act) {
    const made = element("button", "tool", this.bar, text);
    made.type = "button";
    made.title = label;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  }

  copy() {
    this.chart.address.copy().then((done) => {
      this.chart.announce(done ? "Link copied." : "The link cannot be copied here.");
      this.link.classList.toggle("done", done);
      setTimeout(() => this.link.classList.remove("done"), CONFIRMED);
    });
  }

  /** What would do nothing is switched off. */
  refresh() {
    const { kept, selection } = this.chart;
    this.fit.disabled = selection.span() === null;
    this.measure.setAttribute("aria-pressed", String(this.chart.measuring.active));
    this.reset.disabled = kept.view === null;
  }
}
