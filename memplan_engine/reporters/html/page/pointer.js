// What the pointer is over. Names go in as text, never as markup.

import { entryAt, ownerOf } from "../../../plotting/frontend/columns.js";
import { formatBytes, formatCount, formatSteps } from "../../../plotting/frontend/format.js";
import { linesAt } from "../../../plotting/frontend/strip.js";

const REACH = 3;

/** The rectangle at a place of the canvas (CSS pixels), else the nearest within REACH, or -1. */
function rectAt(plan, scales, x, y) {
  const [step, bytes] = [scales.stepAt(x), scales.bytesAt(y)];
  const [dx, dy] = [REACH / scales.stepWidth, REACH / scales.byteHeight];
  let [nearest, best] = [-1, Infinity];
  for (let rect = 0; rect < plan.count; rect += 1) {
    const away = [
      Math.max(plan.start[rect] - step, step - plan.end[rect], 0) / dx,
      Math.max(plan.offset[rect] - bytes, bytes - plan.offset[rect] - plan.size[rect], 0) / dy,
    ];
    if (away[0] > 1 || away[1] > 1) continue;
    const distance = away[0] + away[1];
    if (distance < best) [nearest, best] = [rect, distance];
  }
  return nearest;
}

function rectLines(plan, rect) {
  const buffer = ownerOf(plan, rect);
  const [start, end] = [plan.start[rect], plan.end[rect]];
  return [
    plan.nameOf(buffer),
    `${formatBytes(plan.size[rect])} (${formatCount(plan.size[rect])} B)`,
    `offset ${formatBytes(plan.offset[rect])} (${formatCount(plan.offset[rect])} B)`,
    `live [${formatCount(start)}, ${formatCount(end)}), ${formatSteps(end - start)}`,
    ...factsOf(plan, buffer),
  ];
}

function stepLines(plan, step) {
  const section = entryAt(plan.profileStart, step);
  if (section < 0) return [];
  const [live, top] = [plan.profileLive[section], plan.profileHigh[section]];
  return [`step ${formatCount(step)}`, `live ${formatBytes(live)}`, ...linesAt(plan, step),
    `high water ${formatBytes(top)}, fragmentation ${formatBytes(top - live)}`];
}

function bandLines({ label, start, end }) {
  return [label, `steps ${formatCount(start)} to ${formatCount(end - 1)}`];
}

function showTooltip(box, lines, x, y, width) {
  box.replaceChildren(...lines.map((line, place) => {
    const row = document.createElement("div");
    row.textContent = line;
    if (place > 3) row.className = "more";
    return row;
  }));
  box.hidden = lines.length === 0;
  const left = x + 16 + box.offsetWidth <= width ? x + 16 : Math.max(0, x - 16 - box.offsetWidth);
  const top = y - 14 - box.offsetHeight >= 0 ? y - 14 - box.offsetHeight : y + 16;
  box.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}
