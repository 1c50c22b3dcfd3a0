// What the picture shows, as a table for those who do not see it: the largest buffers at the peak.

import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { element } from "./element.js";

const ROWS = 20;
let tables = 0;

/** A table in `parent`, hidden from view; its id is what `aria-details` names. */
export function makeTable(parent) {
  const table = element("table", "summary", parent);
  tables += 1;
  table.id = `plan-view-table-${tables}`;
  return table;
}

export function fillTable(table, data) {
  const rects = [];
  for (let rect = 0; rect < data.count; rect += 1) {
    if (data.start[rect] <= data.peakStep && data.peakStep < data.end[rect]) rects.push(rect);
  }
  rects.sort((a, b) => data.size[b] - data.size[a]);
  table.replaceChildren();
  element("caption", "", table, `Largest buffers at the ${data.peakName}, step ${formatCount(data.peakStep)}`);
  const head = element("tr", "", element("thead", "", table));
  for (const title of ["buffer", "size", "offset", "steps"]) element("th", "", head, title).scope = "col";
  const body = element("tbody", "", table);
  for (const rect of rects.slice(0, ROWS)) {
    const row = element("tr", "", body);
    const steps = `${formatCount(data.start[rect])} to ${formatCount(data.end[rect] - 1)}`;
    const texts = [data.nameOf(ownerOf(data, rect)), formatBytes(data.size[rect]), formatBytes(data.offset[rect]), steps];
    for (const text of texts) element("td", "", row, text);
  }
}
