// View and selection, kept by key for a chart that Streamlit takes down and puts up again.

import { viewInAddress } from "./address.js";
import { following } from "./follow.js";
import { panned } from "../../../memplan_engine/plotting/frontend/viewport.js";

const NONE = { step: null, second: null };

/** What `memory` has for a chart: the zoom lasts while the time axis does, the selection and the
 * marks until the page sets others. */
export function recall(memory, { key, serial, selected, marks, marksSerial }, limits, panels) {
  const isNew = !memory.has(key);
  if (isNew) {
    const view = viewInAddress(limits);
    memory.set(key, { view, steps: limits.x1, selected: null, serial: -1, marks: NONE, marksSerial: -1 });
  }
  const kept = memory.get(key);
  if (kept.steps !== limits.x1) Object.assign(kept, { view: null, marks: NONE });
  if (kept.view) kept.view = panned(kept.view, limits, 0, 0);
  kept.steps = limits.x1;
  if (kept.marksSerial !== marksSerial) Object.assign(kept, { marks: { step: marks[0], second: marks[1] }, marksSerial });
  if (kept.serial === serial) return kept;
  kept.serial = serial;
  kept.selected = selected;
  // A visit begins where the address says, wherever the selected one is.
  if (selected !== null && !isNew) kept.view = following(kept.view, limits, panels, selected);
  return kept;
}
