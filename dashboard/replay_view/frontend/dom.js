// Buttons and numbers, as the whole component makes them.

import { formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "../../plan_view/frontend/element.js";

export function button(parent, label, text, action) {
  const made = element("button", "tool", parent, text);
  made.type = "button";
  made.title = label;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", (event) => {
    // After the mouse the keys belong to the picture again; who came by Tab stays.
    if (event.detail) made.blur();
    action();
  });
  return made;
}

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** "1 buffer", "2 buffers". */
export function counted(number, word) {
  return `${number.toLocaleString("en-US")} ${word}${number === 1 ? "" : "s"}`;
}

/** As the engine says a percentage: "12.5 %", "0.042 %", "< 0.001 %". */
export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.001) return "< 0.001 %";
  return `${value > 0 && value < 0.1 ? Number(value.toPrecision(2)) : value.toFixed(1)} %`;
}

/** Steps `[start, end)`, for people. */
export function span(start, end) {
  return end - start === 1 ? `step ${formatCount(start)}` : `steps ${formatCount(start)}–${formatCount(end - 1)}`;
}
