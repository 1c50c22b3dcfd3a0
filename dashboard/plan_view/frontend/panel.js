// One panel: its elements and its drawing.

import { drawBands, tintBands } from "../../../memplan_engine/plotting/frontend/bands.js";
import { drawGrid, drawMemoryAxis, drawStripAxis, drawTimeAxis } from "../../../memplan_engine/plotting/frontend/axes.js";
import { drawLevels, drawPeak } from "../../../memplan_engine/plotting/frontend/levels.js";
import { drawStrip, drawStripKey, drawStripLines } from "../../../memplan_engine/plotting/frontend/strip.js";
import { scalesOf } from "../../../memplan_engine/plotting/frontend/viewport.js";
import { formatBytes, formatCount, formatSteps } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "./element.js";
import { profileFor } from "./layers.js";
import { partsOf } from "./layout.js";
import { makeRaster, rasterise, rectAt } from "./raster.js";
import { drawCallouts } from "./callouts.js";
import { drawLabels } from "./labels.js";
import { drawMatches } from "./matches.js";
import { drawPatterns } from "./patterns.js";
import { drawRibbon, LAYER_ROW } from "./ribbon.js";
import { drawLevelNames, namePeak } from "./level_names.js";
import { fillTable, makeTable } from "./summary_table.js";
import { mostOf } from "./limits.js";

const REACH = 2;
const GUTTERLESS = 20;
const MOST_NAMES = 12;

/** The first names of bands, each once, and how many there are besides. */
function namesOf(bands) {
  const names = [...new Set(bands.map(({ label }) => label))];
  const more = names.length - MOST_NAMES;
  return [...names.slice(0, MOST_NAMES), ...(more > 0 ? [`and ${formatCount(more)} more`] : [])].join(", ");
}

/** What a panel shows, in words. */
export function summaryOf(panel) {
  const words = [
    `${panel.title}: ${formatCount(panel.buffers)} buffers over ${formatSteps(panel.steps)}`,
    `arena ${formatBytes(panel.arena)}`,
    `lower bound ${formatBytes(panel.bound)}`,
    `${panel.peakName} at step ${panel.peakStep}${panel.labelOf(panel.peakStep) && ` (${panel.labelOf(panel.peakStep)})`}`,
  ];
  if (panel.bands.length > 0) words.push(namesOf(panel.bands));
  if (panel.capacity !== null) words.push(`capacity ${formatBytes(panel.capacity)}`);
  for (const { label, bytes } of panel.lines) words.push(`${label} at most ${formatBytes(mostOf(bytes))}`);
  if (panel.before !== undefined) words.push(`before ${formatBytes(panel.before)}`);
  return `${words.join(", ")}.`;
}

export class PanelView {
  constructor(parent, hintId) {
    this.figure = element("figure", "panel", parent);
    const caption = element("figcaption", "caption", this.figure);
    this.title = element("span", "title", caption);
    this.subtitle = element("span", "subtitle", caption);
    this.stage = element("div", "stage", this.figure);
    this.stage.tabIndex = 0;
    this.stage.setAttribute("role", "group");
    this.stage.setAttribute("aria-describedby", hintId);
    this.base = element("canvas", "base", this.stage);
    this.base.setAttribute("role", "img");
    this.overlay = element("canvas", "overlay", this.stage);
    this.overlay.setAttribute("aria-hidden", "true");
    this.table = makeTable(this.figure);
    this.base.setAttribute("aria-details", this.table.id);
  }

  show(data) {
    this.data = data;
    this.title.textContent = data.title;
    this.subtitle.textContent = data.subtitle;
    this.base.setAttribute("aria-label", summaryOf(data));
    this.stage.setAttribute("aria-label", `Plan ${data.title}`);
    fillTable(this.table, data);
  }

  /** `bands` is the room above the chart, the same for all panels. */
  resize(width, height, left, ratio, bands) {
    this.parts = partsOf(width, height, left, bands,
      this.data.layers.length > 0 ? LAYER_ROW : 0);
    this.ratio = ratio;
    for (const canvas of [this.base, this.overlay]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const { plotWidth, plotHeight } = this.parts;
    const size = [Math.round(plotWidth * ratio), Math.round(plotHeight * ratio)];
    if (this.raster?.width !== size[0] || this.raster.height !== size[1]) this.raster = makeRaster(...size);
  }

  /** Draw everything but what follows the pointer. */
  draw(view, limits, theme) {
    const { data, parts, raster, ratio } = this;
    const ctx = this.base.getContext("2d");
    const scales = scalesOf(parts, view, limits.strip);
    this.scales = scales;
    const { drawn, labelled } = rasterise(raster, data, view, theme.shades, ratio);
    if (theme.patterns) drawPatterns(raster, data, theme.patterns, theme.shades, ratio);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.base.width, this.base.height);
    ctx.putImageData(raster.image, Math.round(parts.left * ratio), Math.round(parts.top * ratio));
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    // Under the rectangles, which come as an image.
    ctx.globalCompositeOperation = "destination-over";
    drawGrid(ctx, parts, scales, view, theme);
    tintBands(ctx, data, parts, scales, theme);
    ctx.globalCompositeOperation = "source-over";
    drawStrip(ctx, profileFor(data, view), parts, scales, view, theme, ratio);
    drawStripLines(ctx, data, parts, scales, view, theme, ratio);
    drawBands(ctx, data, parts, scales, theme);
    if (parts.left > GUTTERLESS) {
      drawMemoryAxis(ctx, parts, scales, view, theme);
      drawStripAxis(ctx, parts, scales, limits.strip, theme);
    }
    drawTimeAxis(ctx, parts, scales, view, theme);
    drawRibbon(ctx, data, parts, scales, view, theme);
    if (data.count === 0) {
      this.sayEmpty(ctx, theme);
      return 0;
    }
    drawLevels(ctx, data, parts, scales, theme);
    const keyEnd = drawStripKey(ctx, data, parts, theme);
    const peak = drawPeak(ctx, data, parts, scales, theme);
    if (peak !== null) namePeak(ctx, data, parts, theme, peak, keyEnd);
    const named = drawLabels(ctx, data, labelled, parts, theme, ratio, scales.x(data.peakStep + 0.5));
    drawMatches(ctx, this, view, theme);
    const taken = drawCallouts(ctx, data, parts, scales, view, theme, raster, named);
    drawLevelNames(ctx, data, parts, scales, theme, raster, view.y1 >= limits.y1 * 0.999, taken);
    return drawn;
  }

  sayEmpty(ctx, theme) {
    ctx.font = `400 13px ${theme.font}`;
    ctx.textAlign = "center";
    ctx.fillStyle = theme.muted;
    ctx.fillText("no buffers", this.parts.left + this.parts.plotWidth / 2, this.parts.top + this.parts.plotHeight / 2);
  }

  /** The rectangle under a point of the stage (CSS pixels), or -1. */
  rectAt(x, y) {
    const { parts, ratio } = this;
    if (x < parts.left || y < parts.top || y >= parts.bottom || x >= parts.left + parts.plotWidth) return -1;
    return rectAt(this.raster, Math.floor((x - parts.left) * ratio), Math.floor((y - parts.top) * ratio), REACH);
  }

  /** The step under a point, or -1 outside the time axis. */
  stepAt(x) {
    const step = Math.floor(this.scales.stepAt(x));
    return x >= this.parts.left && step >= 0 && step < this.data.steps ? step : -1;
  }
}
