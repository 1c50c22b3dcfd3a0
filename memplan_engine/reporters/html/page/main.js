// Puts the page together: state, controls, events.

import { bandAt } from "../../../plotting/frontend/bands.js";
import { ownerOf } from "../../../plotting/frontend/columns.js";
import { formatBytes, formatCount } from "../../../plotting/frontend/format.js";
import { panned, scalesOf, zoomed } from "../../../plotting/frontend/viewport.js";

const WHEEL_ZOOM = 1.25;
const BUTTON_ZOOM = 1.6;

const byId = (id) => document.getElementById(id);

class Chart {
  constructor(plan) {
    this.plan = plan;
    this.canvas = byId("chart");
    this.tooltip = byId("tooltip");
    this.whole = wholeView(plan);
    this.state = { view: this.whole, colouring: plan.colourings[0], matches: null, selected: null,
      order: Array.from({ length: plan.count }, (_, rect) => rect) };
    this.drag = null;
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.canvas.dataset.drawn = drawChart(this.canvas, this.plan, this.state);
    });
  }

  scales() {
    const parts = layout(this.plan, this.canvas.clientWidth, this.canvas.clientHeight);
    return { parts, scales: scalesOf(parts, this.state.view, this.plan.deep) };
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  /** Show `view`; null stands for everything. */
  look(view) {
    this.state.view = view ?? this.whole;
    this.tooltip.hidden = true;
    this.draw();
  }

  zoom(fx, fy, x, y) {
    const { parts, scales } = this.scales();
    const at = { x: scales.stepAt(x ?? (parts.left + parts.right) / 2),
      y: scales.bytesAt(y ?? (parts.top + parts.bottom) / 2) };
    this.look(zoomed(this.state.view, this.whole, at, fx, fy));
  }

  hover(event) {
    const [x, y] = this.place(event);
    const { parts, scales } = this.scales();
    let lines = [];
    if (x >= parts.left && x <= parts.right) {
      const band = bandAt(this.plan, parts, scales, { x, y });
      const rect = y <= parts.bottom ? rectAt(this.plan, scales, x, y) : -1;
      if (band) lines = bandLines(band);
      else if (rect >= 0) lines = rectLines(this.plan, rect);
      else if (y >= parts.stripTop && y <= parts.stripBottom) lines = stepLines(this.plan, Math.floor(scales.stepAt(x)));
    }
    showTooltip(this.tooltip, lines, x, y, this.canvas.clientWidth);
  }

  /** Outline a buffer, say everything about it, and mark its row among those of the peak. */
  select(buffer) {
    this.state.selected = buffer;
    const rect = buffer === null ? -1 : this.rectOf(buffer);
    byId("details").hidden = rect < 0;
    byId("details").textContent = rect < 0 ? "" : rectLines(this.plan, rect).join("\n");
    for (const row of document.querySelectorAll("tr.link")) {
      row.classList.toggle("selected", Number(row.dataset.buffer) === buffer);
    }
    this.draw();
  }

  rectOf(buffer) {
    return this.plan.owner ? this.plan.owner.indexOf(buffer) : buffer;
  }

  /** Dim every buffer whose name does not have `text` in it. */
  find(text) {
    const wanted = text.toLowerCase();
    const { plan } = this;
    const buffers = plan.buffers;
    if (wanted) {
      this.state.matches = Uint8Array.from({ length: buffers },
        (_, buffer) => plan.nameOf(buffer).toLowerCase().includes(wanted));
    } else {
      this.state.matches = null;
    }
    const count = this.state.matches ? this.state.matches.reduce((sum, one) => sum + one, 0) : 0;
    byId("found").textContent = wanted ? `${formatCount(count)} of ${formatCount(buffers)}` : "";
    this.draw();
  }

  colour(place) {
    this.state.colouring = this.plan.colourings[place];
    fillLegend(byId("legend"), this.plan, this.state.colouring);
    this.draw();
  }
}

function fillLegend(list, plan, colouring) {
  list.replaceChildren();
  const dark = readTheme().dark ? 1 : 0;
  const add = (className, label, color) => {
    const item = list.appendChild(document.createElement("li"));
    const mark = item.appendChild(document.createElement("span"));
    mark.className = className;
    if (color) mark.style.background = color;
    item.appendChild(document.createElement("span")).textContent = label;
  };
  for (const [label, place] of colouring.legend) add("swatch", label, colouring.palette[place][dark]);
  const [name, ...equal] = plan.arenaName.split(" = ");
  add("mark arena", [`${name} ${formatBytes(plan.arena)}`, ...equal].join(" = "));
  if (plan.arena !== plan.bound) add("mark bound", `lower bound ${formatBytes(plan.bound)}`);
  add("mark peak", `${plan.peakName} step ${formatCount(plan.peakStep)}`);
}

function listen(chart) {
  const { canvas } = chart;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    chart.drag = { from: chart.place(event), view: chart.state.view, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!chart.drag) {
      chart.hover(event);
      return;
    }
    const [x, y] = chart.place(event);
    const [dx, dy] = [x - chart.drag.from[0], y - chart.drag.from[1]];
    if (Math.abs(dx) + Math.abs(dy) > 4) chart.drag.moved = true;
    if (!chart.drag.moved) return;
    canvas.classList.add("dragging");
    const { scales } = chart.scales();
    chart.look(panned(chart.drag.view, chart.whole, -dx / scales.stepWidth, dy / scales.byteHeight));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (chart.drag && !chart.drag.moved) {
      const [x, y] = chart.place(event);
      const { parts, scales } = chart.scales();
      const rect = y <= parts.bottom && x >= parts.left ? rectAt(chart.plan, scales, x, y) : -1;
      chart.select(rect < 0 ? null : ownerOf(chart.plan, rect));
    }
    chart.drag = null;
    canvas.classList.remove("dragging");
  });
  canvas.addEventListener("pointerleave", () => { chart.tooltip.hidden = true; });
  canvas.addEventListener("dblclick", () => chart.look(null));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const factor = WHEEL_ZOOM ** ((event.deltaY || event.deltaX) / 100);
    chart.zoom(event.shiftKey ? 1 : factor, event.altKey ? 1 : factor, ...chart.place(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => onKey(chart, event));
  byId("closer").addEventListener("click", () => chart.zoom(1 / BUTTON_ZOOM, 1 / BUTTON_ZOOM));
  byId("farther").addEventListener("click", () => chart.zoom(BUTTON_ZOOM, BUTTON_ZOOM));
  byId("whole").addEventListener("click", () => chart.look(null));
  byId("find").addEventListener("input", (event) => chart.find(event.target.value));
  byId("colouring").addEventListener("change", (event) => chart.colour(event.target.selectedIndex));
  for (const row of document.querySelectorAll("tr.link")) {
    row.addEventListener("click", () => chart.select(Number(row.dataset.buffer)));
  }
}

function onKey(chart, event) {
  const { view } = chart.state;
  const [dx, dy] = [(view.x1 - view.x0) / 8, (view.y1 - view.y0) / 8];
  const moves = { ArrowLeft: [-dx, 0], ArrowRight: [dx, 0], ArrowUp: [0, dy], ArrowDown: [0, -dy] };
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (moves[event.key]) chart.look(panned(view, chart.whole, ...moves[event.key]));
  else if (event.key === "+" || event.key === "=") chart.zoom(1 / BUTTON_ZOOM, 1 / BUTTON_ZOOM);
  else if (event.key === "-") chart.zoom(BUTTON_ZOOM, BUTTON_ZOOM);
  else if (event.key === "0" || event.key === "Escape") chart.look(null);
  else return;
  event.preventDefault();
}

async function main() {
  if (typeof DecompressionStream === "undefined") {
    byId("stage").textContent = "The chart needs a browser of 2023 or later.";
    return;
  }
  const plan = await readPlan();
  const chart = new Chart(plan);
  for (const { name } of plan.colourings) {
    byId("colouring").appendChild(document.createElement("option")).textContent = name;
  }
  listen(chart);
  chart.colour(0);
  new ResizeObserver(() => chart.draw()).observe(chart.canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    chart.colour(byId("colouring").selectedIndex);
  });
}

main();
