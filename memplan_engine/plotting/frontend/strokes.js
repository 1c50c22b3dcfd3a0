// Lines on a canvas.

/** A line through points [x, y]; `dash` has the lengths of strokes and blanks. */
export function strokeThrough(ctx, points, color, width, dash = []) {
  ctx.strokeStyle = color;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.beginPath();
  for (const [x, y] of points) ctx.lineTo(x, y);
  ctx.stroke();
  ctx.setLineDash([]);
}

/** From left to right at `y`, on whole pixels, unless that is above `top` or below `bottom`. */
export function strokeLevel(ctx, y, parts, top, bottom, color, dash) {
  if (y < top - 0.5 || y > bottom + 0.5) return;
  const at = Math.round(y) + 0.5;
  strokeThrough(ctx, [[parts.left, at], [parts.right, at]], color, 1.5, dash);
}
