// The key to colours and lines, as HTML. A click on a colour dims all others, Shift or Ctrl adds one.

import { element } from "./element.js";

const LINE_KEYS = [["arena", "arena"], ["bound", "lower bound"], ["capacity", "capacity"], ["before", "before"]];

export class Legend {
  constructor(parent, chart) {
    this.chart = chart;
    this.list = element("ul", "legend", parent);
    this.shown = new Set();
    this.buttons = [];
  }

  /** Show `entries` ([label, colour]) and the lines of the panels; other entries begin with all colours shown. */
  fill(entries, panels, theme) {
    const labels = JSON.stringify(entries);
    if (labels !== this.labels) this.shown.clear();
    this.labels = labels;
    this.list.replaceChildren();
    this.buttons = entries.map(([label, color]) => {
      const button = element("button", "entry pick", element("li", "item", this.list));
      button.type = "button";
      button.title = "dim the others; with Shift show this one, too";
      element("span", "swatch", button).style.background = theme.shades[color].css;
      element("span", "label", button, label);
      button.addEventListener("click", (event) => this.pick(color, event.shiftKey || event.ctrlKey || event.metaKey));
      return { button, color };
    });
    this.fillLines(panels, theme);
    this.press();
  }

  fillLines(panels, theme) {
    for (const [name, label] of [...LINE_KEYS, ["peak", `${panels[0]?.peakName ?? "peak"} step`]]) {
      if (name === "capacity" && panels.every((panel) => panel.capacity === null)) continue;
      if (name === "before" && panels.every((panel) => panel.before === undefined)) continue;
      const item = element("li", "entry", this.list);
      const mark = element("span", `mark ${name}`, item);
      const { bound, capacity, before, peak } = theme;
      mark.style.borderColor = { arena: theme.text, bound, capacity, before, peak }[name];
      element("span", "label", item, label);
    }
  }

  /** Only this colour, or all if it was the only one; or one more or fewer. */
  pick(color, several) {
    const alone = this.shown.size === 1 && this.shown.has(color);
    if (!several) this.shown = new Set(alone ? [] : [color]);
    else if (!this.shown.delete(color)) this.shown.add(color);
    this.press();
    this.chart.recolor();
  }

  press() {
    for (const { button, color } of this.buttons) button.setAttribute("aria-pressed", String(this.shown.has(color)));
    this.list.classList.toggle("picking", this.shown.size > 0);
  }

  /** The shades to draw with: those of the colours that are not shown are the dimmed ones. */
  shades(all) {
    const half = all.length >> 1;
    if (this.shown.size === 0) return all;
    return all.map((shade, i) => (i < half && !this.shown.has(i) ? all[i + half] : shade));
  }
}
