// What the chart keeps in the address of the page: written without a run of the page, read by the first chart of a
// visit. The view, how the tree is grouped, and the colours that the legend shows alone.

import { panned } from "../../../memplan_engine/plotting/frontend/viewport.js";

const BETWEEN = "|";
const SETTLED = 250;

function asked(name) {
  return new URLSearchParams(window.location.search).get(name);
}

/** How the tree is to be grouped, null where nothing is said of it. */
export function groupingInAddress() {
  return asked("by");
}

/** The labels of the colours that are to be shown alone. */
export function onlyInAddress() {
  return asked("only")?.split(BETWEEN) ?? [];
}

/** The view that the address asks for, inside of `limits`; null for everything and for what makes no sense. */
export function viewInAddress(limits) {
  const text = asked("view") ?? "";
  const numbers = text.split(",").map((part) => (part.trim() === "" ? NaN : Number(part)));
  const [x0, x1, y0, y1] = numbers;
  if (numbers.length !== 4 || !numbers.every(Number.isFinite) || x0 >= x1 || y0 >= y1) return null;
  if (x0 >= limits.x1 || x1 <= 0 || y0 >= limits.y1 || y1 <= 0) return null;
  return panned({ x0, x1, y0, y1 }, limits, 0, 0);
}

/** "38.5,122,0,58720256": steps to a hundredth, whole bytes. */
function textOf({ x0, x1, y0, y1 }) {
  return [...[x0, x1].map((step) => Number(step.toFixed(2))), Math.floor(y0), Math.ceil(y1)].join();
}

export class Address {
  constructor(chart) {
    this.chart = chart;
    chart.on("view", () => this.later());
  }

  /** Write it when nothing has moved for a while; the server, which writes its own choices, may have undone it. */
  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), SETTLED);
  }

  write() {
    const { kept, root, side, legend } = this.chart;
    if (!kept || !root.isConnected) return;
    const url = new URL(window.location.href);
    const before = url.search;
    const values = { view: kept.view && textOf(kept.view), by: side.tree.chosen, only: legend.alone().join(BETWEEN) };
    for (const [name, text] of Object.entries(values)) {
      if (text) url.searchParams.set(name, text);
      else url.searchParams.delete(name);
    }
    if (url.search === before) return;
    window.history.replaceState(window.history.state, "", url);
  }

  end() { clearTimeout(this.timer); }

  /** Put the address of all that is shown on the clipboard. */
  async copy() {
    this.write();
    const text = window.location.href;
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copyBySelection(text, this.chart.root);
    }
  }
}

/** Where there is no clipboard, as on a server without https. */
function copyBySelection(text, parent) {
  const field = document.createElement("textarea");
  field.value = text;
  parent.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}
