// The key to colours and lines, as HTML.

import { element } from "./element.js";

const LINE_KEYS = [["arena", "arena"], ["bound", "lower bound"], ["capacity", "capacity"], ["before", "before"],
  ["peak", "peak step"]];

export function fillLegend(list, entries, panels, theme) {
  list.replaceChildren();
  for (const [label, index] of entries) {
    const item = element("li", "entry", list);
    element("span", "swatch", item).style.background = theme.shades[index].css;
    element("span", "label", item, label);
  }
  for (const [name, label] of LINE_KEYS) {
    if (name === "capacity" && panels.every((panel) => panel.capacity === null)) continue;
    if (name === "before" && panels.every((panel) => panel.before === undefined)) continue;
    const item = element("li", "entry", list);
    const mark = element("span", `mark ${name}`, item);
    const { bound, capacity, before, peak } = theme;
    mark.style.borderColor = { arena: theme.text, bound, capacity, before, peak }[name];
    element("span", "label", item, label);
  }
}
