// Colours: what the theme gives, and what has to be mixed from it.

import { inkOn, luminance } from "../../../memplan_engine/plotting/frontend/contrast.js";

const PROBE = document.createElement("canvas").getContext("2d");
const DIMMED = 0.8;

/** Any CSS colour → [r, g, b]; transparency is dropped. */
export function parseColor(css) {
  PROBE.fillStyle = "#000000";
  PROBE.fillStyle = css;
  const text = PROBE.fillStyle;
  if (text[0] !== "#") return text.match(/[\d.]+/g).slice(0, 3).map(Number);
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

export function mix(from, to, share) {
  return from.map((value, i) => Math.round(value + (to[i] - value) * share));
}

export function cssColor(rgb, alpha = 1) {
  return `rgba(${rgb[0]},${rgb[1]},${rgb[2]},${alpha})`;
}

/** One palette entry as the rasteriser and the labels need it. */
function shade(rgb, dimmed) {
  const ink = inkOn(rgb);
  const [r, g, b] = rgb;
  return {
    pixel: ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0,
    css: cssColor(rgb),
    dim: dimmed,
    ink: cssColor(dimmed ? mix(ink, rgb, 0.45) : ink),
    faint: cssColor(mix(ink, rgb, dimmed ? 0.55 : 0.22)),
  };
}

/** What to draw with, from the CSS variables of the theme and the palette's side for it. */
export function readTheme(element, palette) {
  const style = getComputedStyle(element);
  const value = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  const background = parseColor(value("--st-background-color", "#ffffff"));
  const text = parseColor(value("--st-text-color", "#31333f"));
  const dark = luminance(background) < 0.4;
  const base = palette.map((pair) => parseColor(pair[dark ? 1 : 0]));
  return {
    dark,
    background,
    font: value("--st-font", "sans-serif"),
    text: cssColor(text),
    muted: cssColor(mix(text, background, 0.32)),
    grid: cssColor(mix(background, text, 0.09)),
    axis: cssColor(mix(background, text, 0.32)),
    plate: cssColor(background, 0.88),
    halo: cssColor(background, 0.9),
    band: cssColor(text, 0.07),
    live: dark ? "#7fb2f5" : "#3b7ddd",
    holes: dark ? "#6e4f38" : "#f5c9ab",
    hatch: dark ? "#a0714c" : "#e39b69",
    bound: dark ? "#8fc1ff" : "#1f66c7",
    capacity: dark ? "#ff9d9d" : "#c6303a",
    before: dark ? "#d0b3ff" : "#7a3fc4",
    plateau: cssColor(mix(background, text, 0.08)),
    veil: cssColor(background, 0.68),
    mark: dark ? "#8fc1ff" : "#1f5fbf",
    markInk: dark ? "#0b1a2e" : "#ffffff",
    peak: dark ? "#ff9db4" : "#b3264e",
    shades: [...base.map((rgb) => shade(rgb, false)),
      ...base.map((rgb) => shade(mix(rgb, background, DIMMED), true))],
  };
}
