// By how many bytes more or fewer are live, step by step: a strip of its own under the panels.

import { drawTimeAxis } from "../../../memplan_engine/plotting/frontend/axes.js";
import { strokeThrough } from "../../../memplan_engine/plotting/frontend/strokes.js";
import { scalesOf } from "../../../memplan_engine/plotting/frontend/viewport.js";
import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "./element.js";
import { isForChart } from "./gestures.js";

const DIFFERENCE_HEIGHT = 104;
const DIFFERENCE_TOP = 6;
const DIFFERENCE_AXIS = 22;
const DIFFERENCE_HATCH = 6;

export class DifferenceStrip {
  /** `chart` offers its moves, reset and its pointing. */
  constructor(parent, chart) {
    this.figure = element("figure", "difference", parent);
    this.caption = element("figcaption", "caption", this.figure);
    this.stage = element("div", "stage", this.figure);
    this.base = element("canvas", "base", this.stage);
    this.base.setAttribute("role", "img");
    this.overlay = element("canvas", "overlay", this.stage);
    this.overlay.setAttribute("aria-hidden", "true");
    this.listen(chart);
  }

  show(data) {
    this.data = data;
    this.figure.hidden = !data;
    if (!data) return;
    this.caption.textContent = data.title;
    const delta = data.head.map((bytes, j) => bytes - data.base[j]);
    this.delta = delta;
    this.most = delta.reduce((most, bytes) => Math.max(most, bytes), 0);
    this.least = delta.reduce((least, bytes) => Math.min(least, bytes), 0);
    const words = `at most ${formatBytes(this.most)} more and ${formatBytes(-this.least)} fewer`;
    this.base.setAttribute("aria-label", `${data.title}: ${words}.`);
  }

  resize(width, left, ratio) {
    if (!this.data) return;
    this.figure.style.setProperty("--gutter", `${left}px`);
    const bottom = DIFFERENCE_HEIGHT - DIFFERENCE_AXIS;
    const plotWidth = Math.max(20, width - left - 1);
    this.parts = { left, right: left + plotWidth, plotWidth, top: DIFFERENCE_TOP, bottom, stripBottom: bottom };
    this.ratio = ratio;
    for (const canvas of [this.base, this.overlay]) {
      [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(DIFFERENCE_HEIGHT * ratio)];
      [canvas.style.width, canvas.style.height] = [`${width}px`, `${DIFFERENCE_HEIGHT}px`];
    }
  }

  draw(view, theme) {
    if (!this.data || !this.parts) return;
    const { parts, ratio, data } = this;
    const ctx = this.base.getContext("2d");
    this.setScales(view);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, parts.left + parts.plotWidth + 1, DIFFERENCE_HEIGHT);
    const { up, down } = columnExtremes(this, view, Math.round(parts.plotWidth * ratio));
    this.fill(ctx, up, theme.shades[data.up].css, theme, 1);
    this.fill(ctx, down, theme.shades[data.down].css, theme, -1);
    ctx.fillStyle = theme.axis;
    ctx.fillRect(parts.left, Math.round(this.scales.y(0)), parts.plotWidth, 1);
    this.drawScale(ctx, theme);
    drawTimeAxis(ctx, parts, this.scales, view, theme);
    this.drawPeak(ctx, theme);
  }

  setScales(view) {
    const { parts, most, least } = this;
    const middle = (parts.top + parts.stripBottom) / 2;
    const scales = scalesOf(parts, { ...view, y0: least, y1: most }, 1);
    this.scales = { ...scales, y: most > least ? scales.y : () => middle, bytesAt: () => view.y0 };
  }

  /** The area between zero and `values`, hatched upwards or downwards. */
  fill(ctx, values, color, theme, sign) {
    const { parts, scales, ratio } = this;
    const zero = scales.y(0);
    const area = new Path2D();
    for (let from = 0, column = 1; column <= values.length; column += 1) {
      if (column < values.length && values[column] === values[from]) continue;
      const y = scales.y(values[from]);
      const high = Math.max(1, Math.abs(y - zero));
      if (values[from] !== 0) area.rect(parts.left + from / ratio, Math.min(y, zero), (column - from) / ratio, high);
      from = column;
    }
    ctx.fillStyle = color;
    ctx.fill(area);
    ctx.save();
    ctx.clip(area);
    ctx.strokeStyle = theme.plate;
    ctx.lineWidth = 0.75;
    ctx.beginPath();
    for (let x = parts.left - DIFFERENCE_HEIGHT; x < parts.left + parts.plotWidth + DIFFERENCE_HEIGHT; x += DIFFERENCE_HATCH) {
      ctx.moveTo(x, sign > 0 ? DIFFERENCE_HEIGHT : 0);
      ctx.lineTo(x + DIFFERENCE_HEIGHT, sign > 0 ? 0 : DIFFERENCE_HEIGHT);
    }
    ctx.stroke();
    ctx.restore();
  }

  /** The extremes beside the strip, and zero where there is room. */
  drawScale(ctx, theme) {
    const { parts, scales, most, least } = this;
    ctx.font = `400 11px ${theme.font}`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    ctx.fillStyle = theme.muted;
    const taken = [];
    for (const [bytes, text] of [[most, `+${formatBytes(most)}`], [least, `−${formatBytes(-least)}`], [0, "0"]]) {
      const y = Math.min(parts.stripBottom - 4, Math.max(parts.top + 4, scales.y(bytes)));
      if ((bytes === 0 && text !== "0") || taken.some((other) => Math.abs(other - y) < 12)) continue;
      taken.push(y);
      ctx.fillText(text, parts.left - 8, y);
    }
  }

  drawPeak(ctx, theme) {
    const x = this.scales.x(this.data.peakStep + 0.5);
    if (x < this.parts.left || x > this.parts.left + this.parts.plotWidth) return;
    const at = Math.round(x) + 0.5;
    strokeThrough(ctx, [[at, this.parts.top], [at, this.parts.stripBottom]], theme.peak, 1, [4, 3]);
  }

  drawCursor(step, theme) {
    if (!this.data || !this.scales) return;
    const ctx = this.overlay.getContext("2d");
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ctx.clearRect(0, 0, this.parts.left + this.parts.plotWidth + 1, DIFFERENCE_HEIGHT);
    const x = Math.round(this.scales.x(step + 0.5));
    if (step < 0 || x < this.parts.left || x > this.parts.left + this.parts.plotWidth) return;
    ctx.fillStyle = theme.text;
    ctx.fillRect(x, this.parts.top, 1, this.parts.stripBottom - this.parts.top);
  }

  listen(chart) {
    this.stage.addEventListener("wheel", (event) => {
      if (!isForChart(event, this.stage)) return;
      event.preventDefault();
      const delta = Math.max(-240, Math.min(240, event.deltaY || event.deltaX));
      chart.moves.zoom(this, { x: event.offsetX, y: event.offsetY }, Math.exp(delta * 0.002), 1);
    }, { passive: false });
    this.stage.addEventListener("dblclick", () => chart.reset());
    this.stage.addEventListener("pointermove", (event) => this.tell(event, chart));
    this.stage.addEventListener("pointerleave", () => chart.pointing.leave());
  }

  tell(event, chart) {
    if (!this.scales) return;
    const step = Math.floor(this.scales.stepAt(event.offsetX));
    const bounds = this.data.bounds;
    if (event.offsetX < this.parts.left || step < 0 || step >= bounds[bounds.length - 1]) {
      chart.pointing.leave();
      return;
    }
    chart.pointing.point(this, event, step, this.linesAt(step));
  }

  /** A step of the head: what is live there, and at the base's step that stands for it. */
  linesAt(step) {
    const { bounds, base, head } = this.data;
    let j = 0;
    while (j + 1 < head.length && bounds[j + 1] <= step) j += 1;
    const delta = head[j] - base[j];
    const change = delta === 0 ? "no difference" : `${formatBytes(Math.abs(delta))} ${delta > 0 ? "more" : "fewer"}`;
    return [
      { text: `head's step ${formatCount(step)}: ${change}`, className: "name" },
      { text: `live ${formatBytes(base[j])} in base, ${formatBytes(head[j])} in head` },
    ];
  }
}

/** The largest and the smallest difference in each pixel column of the view. */
function columnExtremes({ data, delta }, view, width) {
  const [up, down] = [new Float64Array(width), new Float64Array(width)];
  const k = width / (view.x1 - view.x0);
  for (let j = 0; j < delta.length; j += 1) {
    const [from, to] = [data.bounds[j], data.bounds[j + 1]];
    if (delta[j] === 0 || to <= view.x0 || from >= view.x1) continue;
    const first = Math.min(width - 1, Math.max(0, Math.round((from - view.x0) * k)));
    const last = Math.min(width, Math.max(first + 1, Math.round((to - view.x0) * k)));
    const side = delta[j] > 0 ? up : down;
    for (let column = first; column < last; column += 1) {
      if (Math.abs(delta[j]) > Math.abs(side[column])) side[column] = delta[j];
    }
  }
  return { up, down };
}
