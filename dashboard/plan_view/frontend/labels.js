// Names inside the rectangles that have room for them.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { fitted, measurer } from "../../../memplan_engine/plotting/frontend/fitting.js";
import { LINE_HEIGHT } from "./level_names.js";
import { shadeOf } from "./raster.js";

const PADDING = 5;
const TWO_LINES = 34;

/** Draw the labels of `labelled` (device pixels of the plot) in CSS pixels; none across the line at x = `peak`.
 * Returns the places they take. */
export function drawLabels(ctx, panel, labelled, parts, theme, ratio, peak) {
  ctx.font = `500 11px ${theme.font}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  const measure = measurer(ctx);
  const taken = [];
  for (const box of labelled) {
    const room = (box.right - box.left) / ratio - 2 * PADDING;
    const name = fitted(panel.nameOf(ownerOf(panel, box.rect)), room, measure);
    if (name === "") continue;
    const shade = theme.shades[shadeOf(panel, box.rect, theme.shades)];
    const middle = parts.top + (box.top + box.bottom) / 2 / ratio + 1;
    const size = formatBytes(panel.size[box.rect]);
    const two = (box.bottom - box.top) / ratio >= TWO_LINES && measure(size) <= room;
    const width = Math.max(measure(name), two ? measure(size) : 0);
    const x = startOf(parts.left + box.left / ratio + PADDING, width, room, peak);
    ctx.fillStyle = shade.ink;
    for (const y of two ? [middle - 7, middle + 7] : [middle]) taken.push({ x, y: y - LINE_HEIGHT / 2, width });
    ctx.fillText(name, x, two ? middle - 7 : middle);
    if (!two) continue;
    ctx.fillStyle = shade.faint;
    ctx.fillText(size, x, middle + 7);
  }
  return taken;
}

/** Where a text begins: at the left, or just past the peak line where it would cross it and there is room. */
function startOf(left, width, room, peak) {
  const crosses = peak > left - 2 && peak < left + width + 2;
  return crosses && peak + PADDING + width <= left + room ? peak + PADDING : left;
}
