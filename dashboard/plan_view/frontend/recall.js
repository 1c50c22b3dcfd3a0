// View and selection, kept by key for a chart that Streamlit takes down and puts up again.

import { following } from "./follow.js";
import { panned } from "../../../memplan_engine/plotting/frontend/viewport.js";

/** What `memory` has for a chart: the zoom lasts while the time axis does, the selection until the page sets
 * another. */
export function recall(memory, { key, serial, selected }, limits, panels) {
  if (!memory.has(key)) memory.set(key, { view: null, steps: 0, selected: null, serial: -1 });
  const kept = memory.get(key);
  if (kept.steps !== limits.x1) kept.view = null;
  if (kept.view) kept.view = panned(kept.view, limits, 0, 0);
  kept.steps = limits.x1;
  if (kept.serial === serial) return kept;
  kept.serial = serial;
  kept.selected = selected;
  if (selected !== null) kept.view = following(kept.view, limits, panels, selected);
  return kept;
}
