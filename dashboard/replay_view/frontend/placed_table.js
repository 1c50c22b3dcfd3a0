// The buffers of the picture as a table, for those who do not see it: what `aria-details` of the canvas names.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { counted, span } from "./dom.js";
import { element } from "../../plan_view/frontend/element.js";

const PLACED_ROWS = 20;
let placedTables = 0;

export class PlacedTable {
  constructor(parent, canvas) {
    this.table = element("table", "summary", parent);
    placedTables += 1;
    this.table.id = `replay-table-${placedTables}`;
    canvas.setAttribute("aria-details", this.table.id);
  }

  /** The buffers as they lie after `step`, the largest first; after -1 none. */
  fill(trace, step) {
    const { name, size, start, end } = trace.buffers;
    const offset = trace.placedAt(step);
    const placed = name.map((_, buffer) => buffer).filter((buffer) => offset[buffer] >= 0);
    placed.sort((a, b) => size[b] - size[a]);
    this.table.replaceChildren();
    const more = placed.length > PLACED_ROWS ? `, the largest ${PLACED_ROWS}` : "";
    element("caption", "", this.table, `${counted(placed.length, "buffer")} placed${more}`);
    const head = element("tr", "", element("thead", "", this.table));
    for (const title of ["buffer", "size", "offset", "lifetime"]) element("th", "", head, title).scope = "col";
    const body = element("tbody", "", this.table);
    for (const buffer of placed.slice(0, PLACED_ROWS)) {
      const row = element("tr", "", body);
      const texts = [name[buffer], formatBytes(size[buffer]), formatBytes(offset[buffer]), span(start[buffer], end[buffer])];
      for (const text of texts) element("td", "", row, text);
    }
  }
}
