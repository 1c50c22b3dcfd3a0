// What the pointer is over, panning and zooming. Names go in as text, never as markup.

import { entryAt, ownerOf } from "../../../plotting/frontend/columns.js";
import { formatBytes, formatCount, formatSteps } from "../../../plotting/frontend/format.js";

const REACH = 3;
const ZOOM = 1.25;
const DEEPEST = 2 ** 40;

/** The rectangle at a place of the canvas (CSS pixels), else the nearest within REACH, or -1. */
function rectAt(plan, scales, x, y) {
  const [step, bytes] = [scales.step(x), scales.bytes(y)];
  const [dx, dy] = [REACH / scales.kx, REACH / scales.ky];
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
  const lines = [`step ${formatCount(step)}`, `live ${formatBytes(live)}`,
    `high water ${formatBytes(top)}, holes ${formatBytes(top - live)}`];
  if (plan.held) {
    const { label, exact, start, bytes } = plan.held;
    lines.splice(2, 0, `${label}${exact ? "" : " up to"} ${formatBytes(bytes[entryAt(start, step)])}`);
  }
  return lines;
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

/** Zoom around a point of steps and bytes; a factor above 1 comes closer. */
function zoomed(view, whole, at, fx, fy) {
  const axis = (low, high, least, most, place, factor) => {
    const span = Math.min(most - least, Math.max((high - low) / factor, (most - least) / DEEPEST));
    const share = (place - low) / (high - low);
    const from = Math.min(Math.max(place - share * span, least), most - span);
    return [from, from + span];
  };
  const [x0, x1] = axis(view.x0, view.x1, whole.x0, whole.x1, at.step, fx);
  const [y0, y1] = axis(view.y0, view.y1, whole.y0, whole.y1, at.bytes, fy);
  return { x0, x1, y0, y1 };
}

function panned(view, whole, steps, bytes) {
  const dx = Math.min(Math.max(steps, whole.x0 - view.x0), whole.x1 - view.x1);
  const dy = Math.min(Math.max(bytes, whole.y0 - view.y0), whole.y1 - view.y1);
  return { x0: view.x0 + dx, x1: view.x1 + dx, y0: view.y0 + dy, y1: view.y1 + dy };
}
