// What reads well on what (WCAG 2).

/** Relative luminance, 0 to 1. */
export function luminance(rgb) {
  const [r, g, b] = rgb.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

/** Black or white, whichever reads better on `rgb`. */
export function inkOn(rgb) {
  const [black, white] = [[17, 20, 26], [255, 255, 255]];
  return contrast(rgb, black) >= contrast(rgb, white) ? black : white;
}
