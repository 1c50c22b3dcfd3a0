// Asking the server for what the view needs, one question at a time: the newest view, once the last is answered.

import { decode } from "./decode.js";
import { isSharp, layered, remember } from "./layers.js";
import { portOf } from "./ports.js";

const PATIENCE = 4000;
const REST = 40;

export class Windows {
  constructor(chart) {
    this.chart = chart;
    this.serial = 0;
    this.scene = null;
    this.port = null;
  }

  /** Take part for a chart that shows crops; others are left alone. */
  attach({ key, scene }) {
    this.scene = scene ?? null;
    this.wanted = new Set();
    this.waiting = 0;
    this.asked = "";
    clearTimeout(this.alarm);
    if (this.scene === null) return;
    this.port = portOf(key);
    this.port.listener = () => this.take();
    this.take();
  }

  detach() {
    clearTimeout(this.timer);
    clearTimeout(this.alarm);
    if (this.port) this.port.listener = null;
  }

  /** Before each drawing, so that the server works meanwhile: whether the picture is exact; what it lacks is
   * asked for. */
  look() {
    if (this.scene === null) return true;
    const { panels, view } = this.chart;
    const sharp = panels.every((panel) => isSharp(panel.data, view, panel.raster));
    if (!sharp) this.ask();
    return sharp;
  }

  /** Ask for what is not known of a buffer, if the pointer rests. */
  want(buffer) {
    clearTimeout(this.timer);
    if (this.scene === null || buffer === null) return;
    if (this.chart.panels.every(({ data }) => data.knows(buffer) && data.rectsOf(buffer).length)) return;
    if (this.chart.panels.some(({ data }) => data.asked.has(buffer))) return;
    this.timer = setTimeout(() => {
      this.wanted.add(buffer);
      this.ask();
    }, REST);
  }

  ask() {
    if (!this.port?.send || this.waiting) return;
    const { panels, view } = this.chart;
    const sharp = panels.every((panel) => isSharp(panel.data, view, panel.raster));
    const question = {
      window: [view.x0, view.x1, view.y0, view.y1],
      drawn: sharp,
      cells: panels.map(({ raster }) => [raster.width, raster.height]),
      border: Math.round(panels[0].ratio),
      wanted: [...this.wanted],
    };
    const text = JSON.stringify(question);
    if (text === this.asked || (sharp && question.wanted.length === 0)) return;
    this.asked = text;
    this.serial += 1;
    this.waiting = this.serial;
    this.wanted.clear();
    this.alarm = setTimeout(() => this.giveUp(), PATIENCE);
    this.port.send({ ...question, serial: this.serial });
  }

  /** A run of the page has overtaken the question. */
  giveUp() {
    this.waiting = 0;
    this.asked = "";
    this.chart.redraw();
  }

  /** Hear an answer: what belongs to another picture is dropped. */
  take() {
    if (!this.port.message) return;
    const { header, panels, wanted } = decode(this.port.message);
    if (header.scene !== this.scene) return;
    if (header.serial !== null) this.serial = Math.max(this.serial, header.serial);
    if (this.waiting && header.serial >= this.waiting) {
      this.waiting = 0;
      clearTimeout(this.alarm);
    }
    panels.forEach((near, i) => this.bring(this.chart.panels[i], near));
    wanted.forEach((one, i) => remember(this.chart.panels[i].data, one));
    this.chart.told();
    if (this.wanted.size > 0) this.ask();
  }

  bring(panel, near) {
    const { far, asked, singles, rectsOf } = panel.data;
    const kept = [...singles.keys()].map((buffer) => rowsOf(panel.data, rectsOf(buffer), buffer));
    panel.data = layered(far, near);
    for (const rows of kept) remember(panel.data, rows);
    for (const [buffer, name] of asked) panel.data.asked.set(buffer, name);
  }
}

/** Some rows of a panel, as `remember` takes them. */
function rowsOf(data, rects, buffer) {
  const rows = { count: rects.length, nameOf: () => data.nameOf(buffer) };
  for (const name of ["start", "end", "offset", "size", "color", "owner", "dimmed"]) {
    rows[name] = data[name] && rects.map((rect) => data[name][rect]);
  }
  return rows;
}
