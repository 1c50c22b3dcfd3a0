// The layers under the chart: modules that run one after the other, as deep as there is room for their names.

import { fitted, measurer } from "../../../memplan_engine/plotting/frontend/fitting.js";

export const LAYER_ROW = 20;
const HIGH = 15;
/** A name of five letters, pixels. */
const ROOM = 32;
/** The part of the width that has to belong to layers with room for their names; wte and ln_f are narrow everywhere. */
const NAMED = 0.8;

/** The layers in view at the deepest cut that has room for names. */
function layersInView({ layers }, view, width) {
  let chosen = [];
  for (const depth of layers) {
    const seen = depth.filter(({ start, end }) => end > view.x0 && start < view.x1);
    if (chosen.length > 0 && namedShare(seen, view, width) < NAMED) break;
    chosen = seen;
  }
  return chosen;
}

/** How much of `width` pixels belongs to layers that are wide enough for a name. */
function namedShare(layers, view, width) {
  const pixels = width / (view.x1 - view.x0);
  const widths = layers.map(({ start, end }) => pixels * (Math.min(end, view.x1) - Math.max(start, view.x0)));
  return widths.filter((wide) => wide >= ROOM).reduce((sum, wide) => sum + wide, 0) / width;
}

export function drawRibbon(ctx, panel, parts, scales, view, theme) {
  if (panel.layers.length === 0) return;
  const last = parts.left + parts.plotWidth;
  const top = parts.bottom + 3;
  ctx.font = `500 11px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  const measure = measurer(ctx);
  for (const { label, start, end } of layersInView(panel, view, parts.plotWidth)) {
    const left = Math.max(parts.left, scales.x(start));
    const right = Math.min(last, scales.x(end));
    ctx.fillStyle = theme.plateau;
    ctx.fillRect(left, top, Math.max(0.5, right - left - 1), HIGH);
    const name = fitted(label, right - left - 6, measure);
    if (name === "") continue;
    ctx.fillStyle = theme.text;
    ctx.fillText(name, (left + right) / 2, top + HIGH / 2 + 1);
  }
  if (parts.left > 54) {
    ctx.textAlign = "right";
    ctx.fillStyle = theme.muted;
    ctx.fillText("layer", parts.left - 8, top + HIGH / 2 + 1);
  }
}

/** The layer under a point of the stage, or undefined. */
export function layerAt(panel, point, view) {
  const { data, parts, scales } = panel;
  if (data.layers.length === 0 || point.y < parts.bottom || point.y >= parts.bottom + LAYER_ROW) return undefined;
  const step = scales.stepAt(point.x);
  return layersInView(data, view, parts.plotWidth).find(({ start, end }) => start <= step && step < end);
}
