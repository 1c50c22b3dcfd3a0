// Where things are, in CSS pixels.

const GUTTER = 76;
const NARROW = 900;
const SPACING = 14;
const AXIS = 22;
/** The height of a panel where there are two rows of them. */
export const SECOND_ROW = 0.78;
const STRIP_GAP = 26;

/** Panels per row, the width of each, and the gutter that the first of a row has to its left. */
export function arrange(count, width) {
  const perRow = count >= 3 && width < NARROW ? 2 : count;
  const gutter = Math.min(GUTTER, Math.max(56, width * 0.1));
  const plain = Math.max(60, (width - gutter - SPACING * (perRow - 1)) / perRow);
  return {
    rows: Math.ceil(count / perRow),
    spacing: SPACING,
    columns: Array.from({ length: perRow }, (_, i) => Math.floor(plain + (i === 0 ? gutter : 0))),
    gutterOf: (panel) => (panel % perRow === 0 ? gutter : 1),
  };
}

/** The parts of one panel: the chart, the layers, a gap with captions, the profile strip, the time axis. */
export function partsOf(width, height, left, ribbon = 0, layers = 0) {
  const strip = Math.round(Math.min(120, Math.max(44, height * 0.2)));
  const top = 4 + ribbon;
  const plotHeight = Math.max(40, height - top - layers - STRIP_GAP - strip - AXIS);
  const plotWidth = Math.max(20, Math.floor(width - left - 1));
  return {
    width,
    height,
    left,
    right: left + plotWidth,
    top,
    plotWidth,
    plotHeight,
    bottom: top + plotHeight,
    /** The middle of the row of captions. */
    words: top + plotHeight + layers + STRIP_GAP / 2 - 1,
    stripTop: top + plotHeight + layers + STRIP_GAP,
    stripHeight: strip,
    stripBottom: top + plotHeight + layers + STRIP_GAP + strip,
  };
}
