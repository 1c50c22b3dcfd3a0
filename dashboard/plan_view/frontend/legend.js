// The key to colours and lines, as HTML.

import { element } from "./layout.js";

const LINE_KEYS = [["arena", "arena"], ["bound", "lower bound"], ["budget", "budget"], ["peak", "peak step"]];

export function fillLegend(list, entries, panels, theme) {
  list.replaceChildren();
  for (const [label, index] of entries) {
    const item = element("li", "entry", list);
    element("span", "swatch", item).style.background = theme.shades[index].css;
    element("span", "label", item, label);
  }
  for (const [name, label] of LINE_KEYS) {
    if (name === "budget" && panels.every((panel) => panel.budget === null)) continue;
    const item = element("li", "entry", list);
    const mark = element("span", `mark ${name}`, item);
    mark.style.borderColor = { arena: theme.text, bound: theme.bound, budget: theme.budget, peak: theme.peak }[name];
    element("span", "label", item, label);
  }
}
