// Going to what was selected elsewhere: the zoomed view moves until every panel shows it.

import { revealing } from "./limits.js";

/** The view in which `buffer` can be seen in all panels that have it; null where only the whole shows it. */
export function following(view, limits, panels, buffer) {
  const box = boxOf(panels, buffer);
  if (view === null || box === null) return view;
  if (box.x1 - box.x0 > view.x1 - view.x0 || box.y1 - box.y0 > view.y1 - view.y0) return null;
  return revealing(view, limits, box);
}

/** What the rectangles of a buffer span in all panels together. */
export function boxOf(panels, buffer) {
  const box = { x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity };
  for (const { data } of panels) {
    for (const rect of data.rectsOf(buffer)) {
      box.x0 = Math.min(box.x0, data.start[rect]);
      box.x1 = Math.max(box.x1, data.end[rect]);
      box.y0 = Math.min(box.y0, data.offset[rect]);
      box.y1 = Math.max(box.y1, data.offset[rect] + data.size[rect]);
    }
  }
  return box.x0 < box.x1 ? box : null;
}
