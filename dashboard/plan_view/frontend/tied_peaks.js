// The places that reach the same peak, a button each: one of them alone changes nothing.

import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "./element.js";

export class TiedPeaks {
  constructor(parent, chart) {
    this.chart = chart;
    this.root = element("div", "ties", parent);
    this.root.setAttribute("role", "group");
    this.words = element("span", "pane-note", this.root);
    this.list = element("div", "ties-list", this.root);
  }

  /** `nbytes` is what every one of them comes to. */
  show({ panes: { ties } }, nbytes) {
    this.root.hidden = ties.length === 0;
    this.words.textContent = `The same ${formatBytes(nbytes)} at`;
    this.root.setAttribute("aria-label", this.words.textContent);
    this.list.replaceChildren();
    for (const [label, step] of ties) {
      const button = element("button", "tie", this.list, label);
      button.type = "button";
      button.title = `Step ${formatCount(step)}`;
      button.dataset.step = step;
      element("span", "own-name", button, formatCount(step));
      button.addEventListener("click", () => this.chart.selection.markAndShow(step));
    }
  }

  /** Show which of them is looked at. */
  mark(step) {
    for (const button of this.list.children) button.setAttribute("aria-pressed", Number(button.dataset.step) === step);
  }
}
