// A key whose entries are switches: those that are pressed stay bright in the chart.

import { formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "./element.js";
import { patternSwatch } from "./patterns.js";

/** Put `filters` ({label, color, count, on}) before what `list` holds; `toggle` hears the label of a click. */
export function showFilters(list, filters, patterns, theme, toggle) {
  const items = filters.map(({ label, color, count, on }) => {
    const item = element("li", "entry", null);
    const button = element("button", "filter", item);
    button.type = "button";
    button.title = on ? "show all" : "fade all others";
    button.setAttribute("aria-pressed", String(on));
    button.disabled = count === 0;
    button.append(patternSwatch(patterns[color], theme.shades[color]));
    element("span", "label", button, label);
    element("span", "count", button, formatCount(count));
    button.addEventListener("click", () => toggle(label));
    return item;
  });
  list.prepend(...items);
}
