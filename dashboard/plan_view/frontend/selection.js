// The buffer that is selected, and the steps that are marked: kept, said aloud, and told to Python.

import { firstChoice, neighbour } from "./neighbours.js";
import { boxOf, following } from "./follow.js";
import { revealing } from "./limits.js";
import { liveAt, localPeaks } from "./steps.js";
import { spoken } from "./tooltip.js";
import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";

const KEY_PAUSE = 180;

export class Selection {
  constructor(chart) {
    this.chart = chart;
    this.timers = {};
  }

  get buffer() {
    return this.chart.kept.selected;
  }

  /** Select a buffer (null for none). */
  choose(buffer, panel = this.chart.panels[0], pause = 0) {
    const { chart } = this;
    if (buffer === this.buffer) return;
    chart.kept.selected = buffer;
    chart.root.dataset.selected = buffer ?? "";
    const words = () => (buffer === null ? "Nothing selected." : spoken(panel, panel.data.rectsOf(buffer)[0]));
    this.say = () => chart.announce(words());
    this.say();
    chart.drawOverlays();
    chart.tell("select", buffer);
    this.report("selection", { index: buffer, serial: chart.kept.serial }, pause);
  }

  /** Go to a buffer and select it: for whoever stands beside the chart. */
  goTo(buffer) {
    const { kept, limits, panels } = this.chart;
    if (kept.view && buffer !== null) this.chart.look(following(kept.view, limits, panels, buffer));
    this.choose(buffer);
  }

  /** Mark a step (null for that of the peak), or a second one to hold it against. */
  mark(step, isSecond = false, pause = KEY_PAUSE) {
    const { chart } = this;
    const marks = { ...chart.kept.marks, [isSecond ? "second" : "step"]: step };
    if (marks.step === chart.kept.marks.step && marks.second === chart.kept.marks.second) return;
    this.setMarks(marks, pause);
    if (step === null) return;
    const [data, text] = [chart.panels[0].data, `step ${formatCount(step)}`];
    chart.announce(`${text}, live ${formatBytes(liveAt(data.far ?? data, step))}.`);
  }

  setMarks(marks, pause) {
    const { chart } = this;
    chart.kept.marks = marks;
    chart.drawOverlays();
    chart.tell("step", { ...marks });
    this.report("marks", { ...marks, serial: chart.kept.marksSerial }, pause);
  }

  /** Mark the step one before or after the marked one (or the peak), and go there. */
  markBeside({ data }, sign) {
    const step = this.chart.kept.marks.step ?? data.peakStep;
    this.markAndShow(Math.max(0, Math.min(data.steps - 1, step + sign)));
  }

  /** Mark the next local peak, or the one before. */
  markPeak({ data }, sign) {
    const step = this.chart.kept.marks.step ?? data.peakStep;
    const peaks = localPeaks(data.far ?? data).filter((peak) => (peak - step) * sign > 0);
    if (peaks.length > 0) this.markAndShow(sign > 0 ? peaks[0] : peaks[peaks.length - 1]);
  }

  markAndShow(step) {
    const { chart } = this;
    if (chart.panels[0].data.steps === 0) return;
    const { y0, y1 } = chart.view;
    if (chart.kept.view) chart.look(revealing(chart.view, chart.limits, { x0: step, x1: step + 1, y0, y1 }));
    this.mark(step);
  }

  /** Take selection and marks away; whether there were any. */
  clear() {
    const { selected, marks } = this.chart.kept;
    const marked = marks.step !== null || marks.second !== null;
    if (selected !== null) this.choose(null);
    if (marked) this.setMarks({ step: null, second: null }, 0);
    return selected !== null || marked;
  }

  /** What the selected buffer spans, or else what lies between two marked steps; null for neither. */
  span() {
    const { kept, panels, limits } = this.chart;
    const box = kept.selected === null ? null : boxOf(panels, kept.selected);
    if (box || kept.marks.second === null) return box;
    const [x0, x1] = [kept.marks.step ?? panels[0].data.peakStep, kept.marks.second].sort((a, b) => a - b);
    return { x0, x1: x1 + 1, y0: limits.y0, y1: limits.y1 };
  }

  /** The rectangle next to the selected one in a direction. */
  move(panel, direction) {
    const { chart } = this;
    const at = panel.data.rectsOf(this.buffer)[0];
    const next = at === undefined ? firstChoice(panel.data) : neighbour(panel.data, at, direction);
    if (next < 0) return;
    const { start, end, offset, size } = panel.data;
    const [y0, y1] = [offset[next], offset[next] + size[next]];
    if (chart.kept.view) chart.look(revealing(chart.view, chart.limits, { x0: start[next], x1: end[next], y0, y1 }));
    chart.select(panel, next, KEY_PAUSE);
  }

  /** Tell Python, after a pause where more may follow. */
  report(name, value, pause) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(() => this.chart.send(name, value), pause);
  }

  end() {
    Object.values(this.timers).forEach(clearTimeout);
  }
}
