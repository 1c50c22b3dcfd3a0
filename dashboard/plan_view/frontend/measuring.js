// A rectangle that is drawn to measure: how many bytes, over how many steps.

import { formatBytes, formatSteps } from "../../../memplan_engine/plotting/frontend/format.js";

export class Measuring {
  constructor(chart) {
    this.chart = chart;
    this.active = false;
    this.box = null;
    this.held = false;
  }

  /** Switch it on or off: while it is on, a drag measures. */
  toggle(on = !this.active) {
    this.active = on;
    this.chart.root.classList.toggle("measuring", on);
    this.chart.tell("measure", on);
  }

  /** The key is pressed: it stays on unless something is measured before it is let go. */
  press() {
    this.toggle();
    this.held = this.active;
  }

  release() {
    if (this.held && this.dragged) this.toggle(false);
    [this.held, this.dragged] = [false, false];
  }

  /** From one point of a panel to another, on whole steps. */
  drag(panel, from, to) {
    const { scales, data } = panel;
    const [x0, x1] = [from.x, to.x].map(scales.stepAt).sort((a, b) => a - b);
    const [y0, y1] = [from.y, to.y].map(scales.bytesAt).sort((a, b) => a - b);
    this.dragged = true;
    // It would lie over the words of the box.
    this.chart.pointing.tooltip.hide();
    this.box = {
      x0: Math.max(0, Math.floor(x0)),
      x1: Math.min(data.steps, Math.ceil(x1)),
      y0: Math.max(0, Math.round(y0)),
      y1: Math.max(0, Math.round(y1)),
    };
    this.chart.announce(wordsOfBox(this.box));
    this.chart.drawOverlays();
  }

  /** Take the rectangle away and switch it off; whether there was anything. */
  clear() {
    const had = this.active || this.box !== null;
    this.box = null;
    if (this.active) this.toggle(false);
    if (had) this.chart.drawOverlays();
    return had;
  }
}

function wordsOfBox({ x0, x1, y0, y1 }) {
  return `${formatBytes(y1 - y0)} × ${formatSteps(x1 - x0)}`;
}

/** On the overlay of a panel. */
export function drawMeasured(ctx, { parts, scales }, box, theme) {
  if (!box) return;
  const [left, right] = [box.x0, box.x1].map((step) => clamp(scales.x(step), parts.left, parts.right));
  const [bottom, top] = [box.y0, box.y1].map((bytes) => clamp(scales.y(bytes), parts.top, parts.bottom));
  ctx.fillStyle = theme.band;
  ctx.fillRect(left, top, right - left, bottom - top);
  ctx.strokeStyle = theme.mark;
  ctx.lineWidth = 1.5;
  ctx.strokeRect(left, top, right - left, bottom - top);
  ctx.font = `600 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const text = wordsOfBox(box);
  const width = ctx.measureText(text).width + 10;
  const x = clamp((left + right - width) / 2, parts.left, parts.right - width);
  const y = top - 20 > parts.top ? top - 20 : Math.min(bottom + 4, parts.bottom - 18);
  ctx.fillStyle = theme.mark;
  ctx.fillRect(x, y, width, 16);
  ctx.fillStyle = theme.markInk;
  ctx.fillText(text, x + 5, y + 8.5);
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}
