// The component: bar, picture, side panel, and which of its three modes it is in.

import { parseColor, readTheme } from "../../plan_view/frontend/color.js";
import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "../../plan_view/frontend/element.js";
import { Finder } from "./finder.js";
import { frameOf, inside } from "./geometry.js";
import { Hand } from "./hand.js";
import { Learner } from "./learner.js";
import { marksOf } from "./paint.js";
import { drawStep } from "./picture.js";
import { PlacedTable } from "./placed_table.js";
import { Player } from "./player.js";
import { Side } from "./side.js";
import { decodeMessage } from "./trace.js";
import { arrangeTree, drawTree, heightOfTree } from "./tree.js";

const TALL = 500;
const HEADROOM = 1.07;
const REPORT_PAUSE = 500;
const HINT = {
  replay: "← → step · Home End · space plays · click a buffer for its decision · hover a hole for its reason",
  predict: "Click where the buffer should go · arrow keys up and down move it, Enter answers · → goes on",
  exercise: "Drag a rectangle up or down · or Tab to the picture: ← → choose, ↑ ↓ move, U undoes",
};

const TREE_HINT = "← → step · Home End · space plays · click a node of the tree · dashed: not at its low · ✕ pruned";

export class ReplayView {
  constructor(parent) {
    this.root = element("div", "replay-view", parent);
    this.player = new Player(this.root, (step) => this.show(step));
    this.finder = new Finder(this.player.root, (step) => this.player.jump(step), () => this.step);
    this.body = element("div", "body", this.root);
    const left = element("div", "left", this.body);
    this.stage = element("div", "stage", left);
    this.canvas = element("canvas", "picture", this.stage);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.placed = new PlacedTable(this.stage, this.canvas);
    this.tip = element("p", "tip", this.stage);
    this.tip.hidden = true;
    this.hint = element("p", "hint", left);
    this.side = new Side(this.body);
    this.treeBox = element("div", "tree", this.body);
    this.treeCanvas = element("canvas", "branches", this.treeBox);
    this.treeCanvas.addEventListener("click", (event) => this.pickNode(event));
    this.learner = new Learner(this);
    this.hand = new Hand(this);
    this.player.stopped = () => this.tell();
    this.player.blocked = () => this.mode === "exercise";
    this.listen();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.root);
    document.fonts.ready.then(() => this.draw());
  }

  listen() {
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const on = (name, act) => this.canvas.addEventListener(name, act);
    on("pointermove", (event) => this.actor?.move?.(at(event)) ?? this.hover(at(event)));
    on("pointerdown", (event) => this.actor?.press?.(at(event), event));
    on("pointerup", (event) => this.actor?.release?.(at(event), event));
    on("pointercancel", (event) => this.actor?.release?.(at(event), event));
    on("click", (event) => {
      const buffer = this.actor ? -1 : this.bufferAt(at(event));
      if (buffer >= 0) this.player.jump(this.trace.decisionOf(buffer, this.step));
    });
    on("pointerleave", () => {
      this.tip.hidden = true;
      this.actor?.leave?.();
    });
    on("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.actor?.key?.(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** What takes the pointer: nobody in a replay, else the learner or the hand. */
  get actor() {
    return { predict: this.learner, exercise: this.hand }[this.mode];
  }

  /** Take new data (or the same again, as on every rerun or change of theme). */
  update(message, send) {
    this.send = send;
    if (!this.sameBytes(message)) this.accept(decodeMessage(message));
    this.message = message;
    this.readTheme();
    this.draw();
  }

  sameBytes(message) {
    const old = this.message;
    if (!old || old.length !== message.length) return false;
    for (let i = 0; i < old.length; i += 1) if (old[i] !== message[i]) return false;
    return true;
  }

  accept({ view, trace }) {
    this.trace = trace;
    this.view = view;
    this.mode = view.mode;
    this.root.dataset.mode = view.mode;
    this.player.root.hidden = this.mode === "exercise";
    this.player.load(trace.count, view.step, trace.tree ? "node" : "decision");
    this.finder.load(trace);
    this.side.showCode(trace.code);
    this.tree = trace.tree ? arrangeTree(trace.tree) : null;
    this.treeBox.hidden = !this.tree;
    this.hint.textContent = this.tree && this.mode === "replay" ? TREE_HINT : HINT[this.mode];
    this.learner.begin();
    this.hand.begin(trace, view.exercise);
    this.listPlaced();
  }

  readTheme() {
    const theme = readTheme(this.root, this.view.palette);
    this.theme = marksOf(theme, theme.dark);
    const base = this.view.palette.map((pair) => parseColor(pair[theme.dark ? 1 : 0]));
    this.scene = {
      trace: this.trace,
      rgbOf: (buffer) => base[this.view.color[buffer]],
      inkOf: (buffer) => this.theme.shades[this.view.color[buffer]].ink,
    };
    this.root.style.setProperty("--taken", this.theme.taken);
    this.root.style.setProperty("--rejected", this.theme.rejected);
    this.root.style.setProperty("--wrong", this.theme.wrong);
  }

  get step() {
    return this.player.step;
  }

  /** The player moved. */
  show() {
    const began = performance.now();
    this.learner.begin();
    this.draw();
    this.root.dataset.stepMs = (performance.now() - began).toFixed(2);
    this.tell();
  }

  /** Where the reader is, after a pause. What is played is no choice: the address gets the step at its end. */
  tell() {
    clearTimeout(this.report);
    if (this.player.timer) return;
    this.listPlaced();
    const { step, view: { serial } } = this;
    this.report = setTimeout(() => this.send("step", { step, serial }), REPORT_PAUSE);
  }

  /** What is placed, as a table; of a decision that is to be predicted only what is there before it. */
  listPlaced() {
    this.placed.fill(this.trace, this.mode === "exercise" ? -1 : this.step - (this.mode === "predict" ? 1 : 0));
  }

  /** The reader has answered the question of a step, or reached the optimum by hand: -1. */
  answered(step) {
    this.send("answered", { step, serial: this.view.serial });
  }

  draw() {
    const width = this.stage.clientWidth;
    if (!this.trace || !this.theme || !width) return;
    const limit = this.mode === "exercise" ? this.hand.limit : Math.max(1, this.trace.arena_bytes) * HEADROOM;
    // The page says how much room there is, if not that much.
    const tall = parseInt(getComputedStyle(this.root).getPropertyValue("--picture-height"), 10) || TALL;
    this.frame = frameOf(width, tall, this.trace.time_steps, limit);
    const ctx = prepared(this.canvas, width, tall);
    if (this.mode === "exercise") this.hand.draw(ctx);
    else if (this.mode === "predict" && this.learner.asking) this.learner.draw(ctx);
    else this.drawReplay(ctx);
    if (this.tree) this.drawBranches();
    Object.assign(this.root.dataset, { drawn: this.step + 1, mode: this.mode });
  }

  drawReplay(ctx) {
    const began = drawStep(ctx, this.frame, this.scene, this.step, this.theme);
    this.spots = began.spots;
    this.side.show(this.trace, this.step, began.placed);
    this.canvas.setAttribute("aria-label", this.trace.steps.sentence[this.step]);
    if (this.mode === "predict") this.learner.afterwards(ctx);
  }

  drawBranches() {
    const size = { width: this.treeBox.clientWidth, height: heightOfTree(this.tree) };
    const ctx = prepared(this.treeCanvas, size.width, size.height);
    this.nodes = drawTree(ctx, size, this.trace, this.tree, this.step, this.theme);
  }

  pickNode(event) {
    const box = this.treeCanvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const hit = this.nodes.find((spot) => Math.hypot(spot.x - x, spot.y - y) < 12);
    if (hit) this.player.jump(hit.node);
  }

  hover(point) {
    const over = (this.spots ?? []).filter((spot) => inside(spot.box, point));
    const buffer = this.bufferAt(point);
    this.canvas.style.cursor = buffer >= 0 && !this.actor ? "pointer" : "";
    const text = over.length ? over[over.length - 1].text : this.nameOf(buffer);
    this.tip.hidden = !text;
    if (!text) return;
    this.tip.textContent = text;
    const left = Math.min(point.x + 12, this.stage.clientWidth - this.tip.offsetWidth - 4);
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${point.y + 14}px)`;
  }

  /** The placed buffer under a point; -1 where there is none. */
  bufferAt(point) {
    const placed = this.trace.placedAt(this.step);
    const { size, start, end } = this.trace.buffers;
    const [at, bytes] = [this.frame.stepAt(point.x), this.frame.bytesAt(point.y)];
    return size.findIndex((length, each) => placed[each] >= 0 && start[each] <= at && at < end[each]
      && placed[each] <= bytes && bytes < placed[each] + length);
  }

  nameOf(buffer) {
    if (buffer < 0) return "";
    const { label, size } = this.trace.buffers;
    return `${label[buffer]} · ${formatBytes(size[buffer])} at ${formatBytes(this.trace.placedAt(this.step)[buffer])}`;
  }

  dispose() {
    this.observer.disconnect();
    this.player.dispose();
    clearTimeout(this.report);
    this.root.remove();
  }
}

/** A canvas of that size in CSS pixels, sharp on any screen. */
function prepared(canvas, width, height) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== tall) {
    canvas.width = wide;
    canvas.height = tall;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}
