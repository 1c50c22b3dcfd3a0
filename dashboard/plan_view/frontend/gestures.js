// Pointer, wheel and keys of one panel, translated into what the chart is asked to do.

const CLICK_REACH = 4;
const PIXELS_PER_LINE = 16;
const ARROWS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };
const KEY_ZOOM = 0.8;

export const HINT = "Each rectangle is a buffer: across the steps it lives, upwards its bytes in the arena · "
  + "wheel zooms (Shift: memory only, Alt: time only) · drag pans · double click or 0 resets · "
  + "click selects · arrow keys move the selection, Esc clears it";

/** `chart` offers zoom, pan, reset, hover, leave, click, step and deselect. */
export function listen(panel, chart) {
  const { stage } = panel;
  stage.addEventListener("wheel", (event) => onWheel(event, panel, chart), { passive: false });
  stage.addEventListener("dblclick", () => chart.reset());
  stage.addEventListener("keydown", (event) => onKey(event, panel, chart));
  stage.addEventListener("pointerleave", () => chart.leave());
  listenToDrags(panel, chart);
}

function pointIn(panel, event) {
  const box = panel.base.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function onWheel(event, panel, chart) {
  event.preventDefault();
  const delta = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? PIXELS_PER_LINE : 1);
  const factor = Math.exp(Math.max(-240, Math.min(240, delta)) * 0.002);
  const point = pointIn(panel, event);
  const timeOnly = event.altKey || point.y > panel.parts.bottom;
  chart.zoom(panel, point, event.shiftKey ? 1 : factor, timeOnly && !event.shiftKey ? 1 : factor);
}

/** A press that moves pans; one that does not is a click. */
function listenToDrags(panel, chart) {
  const { stage } = panel;
  let last = null;
  let moved = false;
  const settle = () => {
    last = null;
    stage.classList.remove("dragging");
  };
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    last = { x: event.clientX, y: event.clientY };
    moved = false;
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    if (!last) {
      chart.hover(panel, pointIn(panel, event));
      return;
    }
    const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
    if (!moved && Math.hypot(dx, dy) < CLICK_REACH) return;
    moved = true;
    stage.classList.add("dragging");
    last = { x: event.clientX, y: event.clientY };
    chart.pan(panel, dx, dy);
  });
  stage.addEventListener("pointerup", (event) => {
    if (last && !moved) chart.click(panel, pointIn(panel, event));
    settle();
  });
  stage.addEventListener("pointercancel", settle);
}

function onKey(event, panel, chart) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { parts } = panel;
  const middle = { x: parts.left + parts.plotWidth / 2, y: parts.top + parts.plotHeight / 2 };
  const direction = ARROWS[event.key];
  if (direction && event.shiftKey) {
    const [dx, dy] = { left: [60, 0], right: [-60, 0], up: [0, 60], down: [0, -60] }[direction];
    chart.pan(panel, dx, dy);
  } else if (direction) chart.step(panel, direction);
  else if (event.key === "Escape") chart.deselect();
  else if (event.key === "+" || event.key === "=") chart.zoom(panel, middle, KEY_ZOOM, KEY_ZOOM);
  else if (event.key === "-") chart.zoom(panel, middle, 1 / KEY_ZOOM, 1 / KEY_ZOOM);
  else if (event.key === "0") chart.reset();
  else return;
  event.preventDefault();
  event.stopPropagation();
}
