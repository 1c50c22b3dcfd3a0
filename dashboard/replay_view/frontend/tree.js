// The search tree of `exact` as it grows: leaves side by side, depth downwards, the way to the node in bold.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";

const LEVEL = 30;
const LEAF = 24;
const WIDEST_LEAF = 90;
const PAD = 24;
const WIDEST_NAME = 120;
const BESIDE = 11;
const MARKS = { branched: "", solved: "✓", "refuted before": "=" };

/** Where each node goes when the tree is complete, so that nothing moves while it grows: {x, y} in leaves. */
export function arrangeTree(tree) {
  const children = tree.parent.map(() => []);
  const roots = [];
  tree.parent.forEach((parent, node) => (parent < 0 ? roots : children[parent]).push(node));
  const x = new Float64Array(tree.parent.length);
  let leaf = 0;
  const waiting = [...roots].reverse();
  while (waiting.length) {
    const node = waiting.pop();
    if (!children[node].length) x[node] = leaf++;
    waiting.push(...children[node].slice().reverse());
  }
  // Children come after their parents in order of time.
  for (let node = x.length - 1; node >= 0; node -= 1) {
    const below = children[node];
    if (below.length) x[node] = (x[below[0]] + x[below[below.length - 1]]) / 2;
  }
  return { x, leaves: leaf, deep: Math.max(0, ...tree.depth) };
}

export function heightOfTree(plan) {
  return Math.min(300, PAD * 2 + plan.deep * LEVEL);
}

export function drawTree(ctx, size, trace, plan, node, theme) {
  const { tree } = trace;
  ctx.clearRect(0, 0, size.width, size.height);
  // Names stand to the right of their nodes.
  const right = roomForNames(ctx, trace, plan, theme);
  const room = size.width - PAD - right;
  const gap = Math.max(LEAF, Math.min(WIDEST_LEAF, room / Math.max(1, plan.leaves - 1)));
  const level = Math.min(LEVEL, (size.height - 2 * PAD) / Math.max(1, plan.deep));
  const spare = room - gap * (plan.leaves - 1);
  const shift = spare >= 0 ? spare / 2
    : Math.max(spare, Math.min(0, size.width / 2 - PAD - plan.x[node] * gap));
  const at = (each) => ({ x: shift + PAD + plan.x[each] * gap, y: PAD + tree.depth[each] * level });
  const path = new Set();
  for (let each = node; each >= 0; each = tree.parent[each]) path.add(each);
  drawEdges(ctx, tree, node, at, path, theme);
  const spots = [];
  for (let each = 0; each <= node; each += 1) {
    const spot = at(each);
    if (spot.x < -20 || spot.x > size.width + 20) continue;
    drawNode(ctx, trace, each, spot, { path: path.has(each), current: each === node }, theme);
    spots.push({ ...spot, node: each, path: path.has(each), current: each === node });
  }
  nameNodes(ctx, trace, spots, theme);
  return spots;
}

/** What the widest name needs to the right of a node, in CSS pixels. */
function roomForNames(ctx, trace, plan, theme) {
  ctx.font = nameFont(true, theme);
  plan.names ??= new Set(trace.tree.parent.map((_, node) => nodeLabel(trace, node)));
  const widest = Math.max(0, ...[...plan.names].map((name) => ctx.measureText(name).width));
  return Math.max(PAD, Math.min(WIDEST_NAME, BESIDE + widest + 12));
}

function nameFont(current, theme) {
  return `${current ? 600 : 400} 10px ${theme.font}`;
}

function drawEdges(ctx, tree, node, at, path, theme) {
  for (let each = 0; each <= node; each += 1) {
    if (tree.parent[each] < 0) continue;
    const [from, to] = [at(tree.parent[each]), at(each)];
    ctx.strokeStyle = path.has(each) ? theme.text : theme.axis;
    ctx.lineWidth = path.has(each) ? 2 : 1;
    ctx.setLineDash(tree.kinds[tree.kind[each]] === "lift" ? [4, 3] : []);
    ctx.beginPath();
    ctx.moveTo(from.x, from.y);
    ctx.lineTo(to.x, to.y);
    ctx.stroke();
  }
  ctx.setLineDash([]);
}

/** A disc for what goes on, a cross for what is refuted: never by colour alone. */
function drawNode(ctx, trace, node, { x, y }, { path, current }, theme) {
  const outcome = trace.tree.outcomes[trace.tree.outcome[node]];
  const color = outcome === "solved" ? theme.taken : outcome === "branched" ? theme.text : theme.rejected;
  ctx.fillStyle = current ? color : theme.plate;
  ctx.strokeStyle = color;
  ctx.lineWidth = current || path ? 2 : 1;
  ctx.beginPath();
  ctx.arc(x, y, current ? 9 : 7, 0, 2 * Math.PI);
  ctx.fill();
  ctx.stroke();
  ctx.font = `600 11px ${theme.font}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = current ? theme.plate : color;
  ctx.fillText(MARKS[outcome] ?? "✕", x, y + 1);
}

/** Names beside the nodes wherever they cover nothing: first of the node itself, then of the way to it. */
function nameNodes(ctx, trace, spots, theme) {
  const busy = spots.map(({ x, y }) => ({ x: x - 9, y: y - 9, w: 18, h: 18 }));
  const rank = ({ current, path }) => (current ? 2 : path ? 1 : 0);
  for (const spot of [...spots].sort((a, b) => rank(b) - rank(a))) {
    const text = nodeLabel(trace, spot.node);
    ctx.font = nameFont(spot.current, theme);
    const box = { x: spot.x + BESIDE, y: spot.y - 7, w: ctx.measureText(text).width + 4, h: 14 };
    if (busy.some((other) => meet(other, box))) continue;
    busy.push(box);
    ctx.fillStyle = theme.plate;
    ctx.fillRect(box.x, box.y, box.w, box.h);
    ctx.fillStyle = rank(spot) ? theme.text : theme.muted;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(text, box.x + 2, spot.y + 1);
  }
}

function meet(a, b) {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}

function nodeLabel(trace, node) {
  const { tree, steps, buffers } = trace;
  const kind = tree.kinds[tree.kind[node]];
  if (kind === "root") return `≤ ${formatBytes(tree.capacity[node])}?`;
  const name = buffers.label[steps.buffer[node]];
  const short = name.length > 8 ? `${name.slice(0, 7)}…` : name;
  return kind === "lift" ? `${short} ↑` : `${short} @ ${formatBytes(steps.offset[node])}`;
}
