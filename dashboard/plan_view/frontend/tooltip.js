// What the pointer is over, in words. Text goes in as text, never as markup.

import { formatBytes, formatCount, formatSteps } from "../../../memplan_engine/plotting/frontend/format.js";
import { entryAt, ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { linesAt } from "../../../memplan_engine/plotting/frontend/strip.js";
import { element } from "./element.js";
import { profileFor } from "./layers.js";
import { shadeOf } from "./raster.js";

const AWAY = 14;

/** Lines of {text, className}: a rectangle, with its offsets in the other panels when there are several. */
export function rectLines(panels, panel, rect, step) {
  const { data } = panel;
  const buffer = ownerOf(data, rect);
  const [start, end] = [data.start[rect], data.end[rect]];
  const lines = [
    { text: data.nameOf(buffer), className: "name" },
    { text: `${formatBytes(data.size[rect])} at offset ${formatBytes(data.offset[rect])}` },
    { text: `live [${formatCount(start)}, ${formatCount(end)}), ${formatSteps(end - start)}` },
  ];
  for (const other of panels) {
    const places = other === panel ? [] : other.data.rectsOf(buffer);
    if (!places.length) continue;
    lines.push({ text: elsewhere(other.data, places[0], data, rect), className: "more" });
  }
  lines.push({ text: stepName(data, step), className: "more" });
  return lines;
}

/** Where the same buffer lies in another panel, and its size and lifetime where these are others there. */
function elsewhere(other, place, data, rect) {
  const [start, end, size] = [other.start[place], other.end[place], other.size[place]];
  const words = [`${other.title}: offset ${formatBytes(other.offset[place])}`];
  if (size !== data.size[rect]) words.push(formatBytes(size));
  if (start !== data.start[rect] || end !== data.end[rect]) {
    words.push(`live [${formatCount(start)}, ${formatCount(end)})`);
  }
  return words.join(", ");
}

function stepName(data, step) {
  const label = data.labelOf(step);
  return `step ${formatCount(step)}${label && ` · ${label}`}`;
}

/** A step: its op, live bytes, high water, holes. */
export function stepLines(panel, step) {
  const { data } = panel;
  const profile = profileFor(data, { x0: step, x1: step + 1 });
  const section = entryAt(profile.profileStart, step);
  const lines = [{ text: stepName(data, step), className: "name" }];
  if (section < 0) return lines;
  const [live, high] = [profile.profileLive[section], profile.profileHigh[section]];
  for (const text of linesAt(data, step)) lines.push({ text });
  if (profile.view?.sectionsEach > 1) {
    const last = (profile.profileStart[section + 1] ?? profile.view.profileEnd) - 1;
    lines.push({ text: `up to step ${formatCount(last)}: live at most ${formatBytes(live)}` });
    lines.push({ text: `high water at most ${formatBytes(high)}` });
    return lines;
  }
  lines.push({ text: `live ${formatBytes(live)} · high water ${formatBytes(high)}` });
  lines.push({ text: `fragmentation ${formatBytes(high - live)}` });
  return lines;
}

/** A layer or a band: a click on it fits it. */
export function spanLines({ label, start, end }) {
  return [
    { text: label, className: "name" },
    { text: `steps ${formatCount(start)} to ${formatCount(end - 1)}` },
    { text: "click to fit", className: "more" },
  ];
}

/** The same for a screen reader, in one sentence; none for a rectangle that is not known. */
export function spoken(panel, rect) {
  const { data } = panel;
  if (rect === undefined) return "";
  return `${data.nameOf(ownerOf(data, rect))}, ${formatBytes(data.size[rect])} at offset `
    + `${formatBytes(data.offset[rect])}, live from step ${data.start[rect]} up to ${data.end[rect]}, `
    + `in ${data.title}.`;
}

export class Tooltip {
  constructor(root) {
    this.root = root;
    this.box = element("div", "tooltip", root);
    this.box.setAttribute("role", "tooltip");
    this.hide();
  }

  hide() {
    this.box.hidden = true;
  }

  /** Show `lines` beside a point of the root (CSS pixels); below it where `top` leaves no room above. */
  show(lines, { x, y, top }, swatch) {
    const text = lines.map((line) => line.text).join("\n");
    if (this.text !== text) {
      this.text = text;
      this.box.replaceChildren();
      for (const line of lines) element("div", line.className ?? "line", this.box, line.text);
    }
    this.box.style.setProperty("--swatch", swatch ?? "transparent");
    this.box.classList.toggle("swatched", Boolean(swatch));
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const fits = x + AWAY + width <= this.root.clientWidth;
    const left = fits ? x + AWAY : Math.max(0, x - AWAY - width);
    const above = y - AWAY - height >= top ? y - AWAY - height : y + AWAY;
    this.box.style.transform = `translate(${Math.round(left)}px, ${Math.round(above)}px)`;
  }
}

export function swatchOf(panel, rect, theme) {
  return theme.shades[shadeOf(panel.data, rect, theme.shades)].css;
}
