// Pointer, wheel and keys of one panel, translated into what the chart is asked to do.

const CLICK_REACH = 4;
const PIXELS_PER_LINE = 16;
const ARROWS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };

const KEY_PAN = { left: [60, 0], right: [-60, 0], up: [0, 60], down: [0, -60] };

export const HINT = "Each rectangle is a buffer: its width is its lifetime, its height its bytes in the arena · "
  + "Ctrl + wheel zooms · ? shows all keys";

/** `chart` offers click, scrub and reset, its moves, its pointing and its selection. */
export function listen(panel, chart) {
  const { stage } = panel;
  stage.addEventListener("wheel", (event) => onWheel(event, panel, chart), { passive: false });
  stage.addEventListener("dblclick", () => chart.reset());
  stage.addEventListener("keydown", (event) => onKey(event, panel, chart));
  stage.addEventListener("pointerleave", () => chart.pointing.leave());
  stage.addEventListener("keyup", (event) => { if (event.key === "m") chart.measuring.release(); });
  listenToDrags(panel, chart);
}

function pointIn(panel, event) {
  const box = panel.base.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

/** Whether a turn of the wheel is for the chart: else it scrolls the page. */
export function isForChart(event, stage) {
  return event.ctrlKey || event.metaKey || stage.closest(".column").matches(":focus-within");
}

function onWheel(event, panel, chart) {
  if (!isForChart(event, panel.stage)) return;
  event.preventDefault();
  const delta = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? PIXELS_PER_LINE : 1);
  const factor = Math.exp(Math.max(-240, Math.min(240, delta)) * 0.002);
  const point = pointIn(panel, event);
  const timeOnly = event.altKey || point.y > panel.parts.bottom;
  chart.moves.zoom(panel, point, event.shiftKey ? 1 : factor, timeOnly && !event.shiftKey ? 1 : factor);
}

/** A press that moves pans, or below the plot scrubs; one that does not move is a click. */
function listenToDrags(panel, chart) {
  const { stage } = panel;
  let press = null;
  const settle = () => {
    press = null;
    stage.classList.remove("dragging");
  };
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const point = pointIn(panel, event);
    const scrubs = chart.scrub(panel, point, event.shiftKey);
    press = { x: event.clientX, y: event.clientY, point, moved: false, scrubs, measures: chart.measuring.active };
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    const point = pointIn(panel, event);
    if (!press) {
      chart.pointing.hover(panel, point);
      return;
    }
    if (press.scrubs) {
      chart.scrub(panel, { ...point, y: panel.parts.stripBottom }, event.shiftKey);
      return;
    }
    const [dx, dy] = [event.clientX - press.x, event.clientY - press.y];
    if (!press.moved && Math.hypot(dx, dy) < CLICK_REACH) return;
    if (press.measures) {
      press.moved = true;
      chart.measuring.drag(panel, press.point, point);
      return;
    }
    stage.classList.add("dragging");
    Object.assign(press, { x: event.clientX, y: event.clientY, moved: true });
    chart.moves.pan(panel, dx, dy);
  });
  stage.addEventListener("pointerup", (event) => {
    if (press && !press.moved && !press.scrubs) chart.click(panel, pointIn(panel, event));
    settle();
  });
  stage.addEventListener("pointercancel", settle);
}

function onKey(event, panel, chart) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { selection } = chart;
  const direction = ARROWS[event.key];
  const acts = {
    Escape: () => chart.measuring.clear() || selection.clear() || panel.stage.blur(),
    "+": () => chart.moves.zoomBy(true),
    "=": () => chart.moves.zoomBy(true),
    "-": () => chart.moves.zoomBy(false),
    w: () => chart.moves.zoomBy(true),
    s: () => chart.moves.zoomBy(false),
    a: () => chart.moves.pan(panel, ...KEY_PAN.left),
    d: () => chart.moves.pan(panel, ...KEY_PAN.right),
    0: () => chart.reset(),
    f: () => chart.moves.fit(),
    n: () => selection.markPeak(panel, 1),
    p: () => selection.markPeak(panel, -1),
    ",": () => selection.markBeside(panel, -1),
    ".": () => selection.markBeside(panel, 1),
    m: () => event.repeat || chart.measuring.press(),
    "/": () => chart.toolbar.find.field.focus(),
    "?": () => chart.toolbar.keys.open(),
  };
  if (direction && event.shiftKey) chart.moves.pan(panel, ...KEY_PAN[direction]);
  else if (direction) selection.move(panel, direction);
  else if (acts[event.key]) acts[event.key]();
  else return;
  event.preventDefault();
  event.stopPropagation();
}
