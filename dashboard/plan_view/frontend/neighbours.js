// Where the arrow keys lead.

/** The rectangle next to `rect` in a direction ("left", "right", "up", "down"), or -1. */
export function neighbour(panel, rect, direction) {
  const cost = { left: sideways(panel, rect, -1), right: sideways(panel, rect, 1),
    up: upright(panel, rect, 1), down: upright(panel, rect, -1) }[direction];
  let [best, least] = [-1, Infinity];
  for (let other = 0; other < panel.count; other += 1) {
    if (other === rect) continue;
    const price = cost(other);
    if (price < least) [best, least] = [other, price];
  }
  return best;
}

/** Earlier or later starts; the nearest in start and offset together, each as a share of the whole chart. */
function sideways(panel, rect, sign) {
  const middle = (i) => panel.offset[i] + panel.size[i] / 2;
  const [start, height] = [panel.start[rect], middle(rect)];
  return (other) => {
    const ahead = (panel.start[other] - start) * sign;
    if (ahead <= 0) return Infinity;
    return ahead / panel.steps + 2 * Math.abs(middle(other) - height) / panel.arena;
  };
}

/** What lies above or below while both live: the nearest, then the one that shares most of the lifetime. */
function upright(panel, rect, sign) {
  const { start, end, offset, size } = panel;
  const edge = sign > 0 ? offset[rect] + size[rect] : -offset[rect];
  return (other) => {
    const shared = Math.min(end[rect], end[other]) - Math.max(start[rect], start[other]);
    const away = (sign > 0 ? offset[other] : -(offset[other] + size[other])) - edge;
    if (shared <= 0 || away < 0) return Infinity;
    return away - shared / (2 * panel.steps);
  };
}

/** Where the keyboard begins: the largest rectangle live at the peak. */
export function firstChoice(panel) {
  let [best, most] = [-1, -1];
  for (let rect = 0; rect < panel.count; rect += 1) {
    const live = panel.start[rect] <= panel.peakStep && panel.peakStep < panel.end[rect];
    const weight = panel.size[rect] * (live ? 1e6 : 1);
    if (weight > most) [best, most] = [rect, weight];
  }
  return best;
}
