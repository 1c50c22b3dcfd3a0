// A dashed outline around what was found.

const LEAST = 5;
const MOST = 2000;

/** Outline the rectangles of a panel that are not dimmed, where they are large enough for one. */
export function drawMatches(ctx, { data, parts, scales }, view, theme) {
  const { start, end, offset, size, dimmed } = data;
  if (!theme.searched || !dimmed) return;
  ctx.save();
  ctx.beginPath();
  ctx.rect(parts.left, parts.top, parts.plotWidth, parts.plotHeight);
  ctx.clip();
  ctx.strokeStyle = theme.text;
  ctx.lineWidth = 1.25;
  ctx.setLineDash([3, 2]);
  const [from, to] = data.rangeFor ? data.rangeFor(view) : [0, data.count];
  for (let rect = from, drawn = 0; rect < to && drawn < MOST; rect += 1) {
    if (dimmed[rect] || end[rect] <= view.x0 || start[rect] >= view.x1) continue;
    const [left, top] = [scales.x(start[rect]), scales.y(offset[rect] + size[rect])];
    const [width, height] = [scales.x(end[rect]) - left, scales.y(offset[rect]) - top];
    if (width < LEAST || height < LEAST) continue;
    ctx.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
    drawn += 1;
  }
  ctx.restore();
}
