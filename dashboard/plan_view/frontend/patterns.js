// Patterns over colours, so that a class of rectangles does not rest on colour alone.

import { luminance } from "../../../memplan_engine/plotting/frontend/contrast.js";
import { mix } from "./color.js";
import { shadeOf } from "./raster.js";

// A pattern is a sum of these: what grew and lives longer has the lines of both.
const RISING = 1;
const FALLING = 2;
const DOTS = 4;
const UPRIGHT = 8;
const LEVEL = 16;

const PERIOD = 9;
const STRENGTH = 0.24;
const SWATCH = 14;

/** Whether a device pixel lies on a line of `pattern`; `line` is the width of one. */
function isOn(pattern, x, y, period, line) {
  return ((pattern & RISING) !== 0 && (x + y) % period < line)
    || ((pattern & FALLING) !== 0 && (x - y + period * 65536) % period < line)
    || ((pattern & DOTS) !== 0 && x % period < 2 * line && y % period < 2 * line)
    || ((pattern & UPRIGHT) !== 0 && x % period < line)
    || ((pattern & LEVEL) !== 0 && y % period < line);
}

/** The colour of the lines on a shade: somewhat darker on a light one, lighter on a dark one. */
function lineOn({ pixel }) {
  const rgb = [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
  const [r, g, b] = mix(rgb, luminance(rgb) > 0.2 ? [0, 0, 0] : [255, 255, 255], STRENGTH);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** Draw the pattern of each rectangle's colour (`patterns`, one an entry of the palette, 0 for none) over it. */
export function drawPatterns(raster, panel, patterns, shades, ratio) {
  const { width, height, pixels, ids } = raster;
  const [period, line] = [Math.round(PERIOD * ratio), Math.round(ratio)];
  const lines = shades.map(lineOn);
  for (let y = 0, at = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1, at += 1) {
      const rect = ids[at];
      if (rect < 0 || pixels[at] === 0) continue;
      const pattern = patterns[panel.color[rect]];
      if (pattern !== 0 && isOn(pattern, x, y, period, line)) pixels[at] = lines[shadeOf(panel, rect, shades)];
    }
  }
}

/** A swatch for a key: the colour with its pattern. */
export function patternSwatch(pattern, shade) {
  const canvas = document.createElement("canvas");
  canvas.className = "swatch";
  [canvas.width, canvas.height] = [2 * SWATCH, 2 * SWATCH];
  canvas.setAttribute("aria-hidden", "true");
  const ctx = canvas.getContext("2d");
  const image = ctx.createImageData(2 * SWATCH, 2 * SWATCH);
  const pixels = new Uint32Array(image.data.buffer);
  const line = lineOn(shade);
  pixels.forEach((_, at) => {
    const on = isOn(pattern, at % (2 * SWATCH), Math.floor(at / (2 * SWATCH)), PERIOD + 1, 2);
    pixels[at] = on ? line : shade.pixel;
  });
  ctx.putImageData(image, 0, 0);
  return canvas;
}
