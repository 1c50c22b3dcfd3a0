// Names cut to the room that there is.

const SHORTEST = 4;

/** The width of a text in the font of `ctx`, measured once. */
export function measurer(ctx) {
  const known = new Map();
  return (text) => {
    if (!known.has(text)) known.set(text, ctx.measureText(text).width);
    return known.get(text);
  };
}

/** The name, or its last dotted parts, or its beginning; whichever fits first. "" when nothing useful does. */
export function fitted(name, room, measure) {
  if (measure(name) <= room) return name;
  for (let at = 0; at < name.length - SHORTEST; at += 1) {
    if (name[at] !== "." && name[at] !== "/") continue;
    const tail = `…${name.slice(at + 1)}`;
    if (measure(tail) <= room) return tail;
  }
  let [low, high] = [0, name.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(`${name.slice(0, middle)}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low > SHORTEST ? `${name.slice(0, low).replace(/[./_]+$/, "")}…` : "";
}
