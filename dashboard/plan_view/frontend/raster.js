// Rectangles → pixels, and in a second array of the same shape, pixel → rectangle.

const LABEL_WIDTH = 30;
const LABEL_HEIGHT = 13;
// Below this a loop is quicker than a call of fill, and of a million rectangles nearly all are this narrow.
const FEW_PIXELS = 24;

/** Pixels and ids for a plot of width × height device pixels, kept from frame to frame. */
export function makeRaster(width, height) {
  const image = new ImageData(width, height);
  return {
    width,
    height,
    image,
    pixels: new Uint32Array(image.data.buffer),
    ids: new Int32Array(width * height),
    box: new Int32Array(4),
    kx: 1,
    ky: 1,
  };
}

/**
 * Draw the rectangles of `panel` that `view` shows. Those thinner than a pixel come last and get one, so that
 * nothing vanishes; the dimmed ones of them first, so that what is searched for stays in sight. Returns how many
 * were drawn, and those with room for a label. The server's kernel (`window.py`) follows the same rule.
 */
export function rasterise(raster, panel, view, shades, ratio) {
  raster.pixels.fill(0);
  raster.ids.fill(-1);
  raster.kx = raster.width / (view.x1 - view.x0);
  raster.ky = raster.height / (view.y1 - view.y0);
  const colors = Uint32Array.from(shades, (shade) => shade.pixel);
  const border = Math.round(ratio);
  const { box } = raster;
  const { start, end, offset, size } = panel;
  const thin = [];
  const labelled = [];
  let drawn = 0;
  const [from, to] = panel.rangeFor ? panel.rangeFor(view) : [0, panel.count];
  for (let rect = from; rect < to; rect += 1) {
    const low = offset[rect];
    const high = low + size[rect];
    if (end[rect] <= view.x0 || start[rect] >= view.x1 || high <= view.y0 || low >= view.y1) continue;
    drawn += 1;
    if (!place(raster, start[rect], end[rect], low, high, view)) {
      thin.push(rect, box[0], box[1], box[2], box[3]);
      continue;
    }
    fill(raster, rect, colors[shadeOf(panel, rect, shades)], border);
    const [left, top, right, bottom] = [box[0], box[1], box[2], box[3]];
    if (right - left >= LABEL_WIDTH * ratio && bottom - top >= LABEL_HEIGHT * ratio) {
      labelled.push({ rect, left, top, right, bottom });
    }
  }
  const dims = panel.dimmed || shades.some((shade, i) => shade.dim && i < shades.length >> 1);
  for (const dim of dims ? [true, false] : [false]) {
    for (let i = 0; i < thin.length; i += 5) {
      const rect = thin[i];
      if (dims && shades[shadeOf(panel, rect, shades)].dim !== dim) continue;
      for (let side = 0; side < 4; side += 1) box[side] = thin[i + 1 + side];
      fill(raster, rect, colors[shadeOf(panel, rect, shades)], border);
    }
  }
  return { drawn, labelled };
}

export function shadeOf(panel, rect, shades) {
  return panel.color[rect] + (panel.dimmed && panel.dimmed[rect] ? shades.length >> 1 : 0);
}

/** Put the device pixels of steps [start, end) × bytes [low, high) into raster.box; false when thinner than one. */
function place({ width, height, box, kx, ky }, start, end, low, high, view) {
  let left = Math.max(0, Math.floor((start - view.x0) * kx + 0.5));
  let right = Math.min(width, Math.floor((end - view.x0) * kx + 0.5));
  let top = Math.max(0, height - Math.floor((high - view.y0) * ky + 0.5));
  let bottom = Math.min(height, height - Math.floor((low - view.y0) * ky + 0.5));
  const wide = right > left && bottom > top;
  if (right <= left) {
    left = Math.min(left, width - 1);
    right = left + 1;
  }
  if (bottom <= top) {
    bottom = Math.max(1, bottom);
    top = bottom - 1;
  }
  box[0] = left;
  box[1] = top;
  box[2] = right;
  box[3] = bottom;
  return wide;
}

/** The ids take the whole box; the colour leaves a hairline at the right and the top where there is room. */
function fill(raster, rect, color, border) {
  const { width, pixels, ids, box } = raster;
  const [left, top, right, bottom] = [box[0], box[1], box[2], box[3]];
  const inner = right - (right - left >= 4 * border ? border : 0);
  const first = top + (bottom - top >= 3 * border ? border : 0);
  const wide = right - left > FEW_PIXELS;
  for (let row = top; row < bottom; row += 1) {
    const from = row * width;
    if (wide) {
      ids.fill(rect, from + left, from + right);
      if (row >= first) pixels.fill(color, from + left, from + inner);
      continue;
    }
    for (let x = left; x < right; x += 1) ids[from + x] = rect;
    if (row >= first) for (let x = left; x < inner; x += 1) pixels[from + x] = color;
  }
}

/** The rectangle at a device pixel, or the nearest within `reach`, or -1. */
export function rectAt(raster, x, y, reach) {
  for (let away = 0; away <= reach; away += 1) {
    for (let dy = -away; dy <= away; dy += 1) {
      for (let dx = -away; dx <= away; dx += 1) {
        if (Math.max(Math.abs(dx), Math.abs(dy)) !== away) continue;
        const id = idAt(raster, x + dx, y + dy);
        if (id >= 0) return id;
      }
    }
  }
  return -1;
}

export function idAt(raster, x, y) {
  if (x < 0 || y < 0 || x >= raster.width || y >= raster.height) return -1;
  return raster.ids[y * raster.width + x];
}
