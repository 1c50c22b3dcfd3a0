// Exercise mode: buffers are dragged up and down; conflicts, the arena and the gap to the bound are live.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { Attempt } from "./attempt.js";
import { element } from "../../plan_view/frontend/element.js";
import { button, counted, percent } from "./dom.js";
import { boxOf, inside } from "./geometry.js";
import { drawAttempt } from "./picture.js";

/** Attempts by problem, for a component that Streamlit takes down and puts up again. */
const ATTEMPTS = new Map();

export class Hand {
  constructor(view) {
    this.view = view;
    this.held = -1;
  }

  begin(trace, exercise) {
    this.held = -1;
    this.grip = null;
    if (!exercise) return;
    if (!ATTEMPTS.has(exercise.key)) ATTEMPTS.set(exercise.key, new Attempt(trace, exercise));
    this.attempt = ATTEMPTS.get(exercise.key);
  }

  get limit() {
    return this.attempt.limit;
  }

  /** The buffer under a point, the one drawn last first. */
  bufferAt(point) {
    const { trace, frame } = this.view;
    const { owner, start, end, low, high } = trace.pieces;
    for (let piece = owner.length - 1; piece >= 0; piece -= 1) {
      const at = this.attempt.offsets[owner[piece]];
      if (inside(boxOf(frame, start[piece], end[piece], at + low[piece], at + high[piece]), point)) return owner[piece];
    }
    return -1;
  }

  press(point, event) {
    if (event.button !== 0) return;
    this.held = this.bufferAt(point);
    if (this.held >= 0 && this.attempt.canMove(this.held)) {
      this.grip = { y: point.y, from: this.attempt.offsets[this.held] };
      this.attempt.remember();
      this.view.canvas.setPointerCapture(event.pointerId);
    }
    this.view.draw();
  }

  move(point) {
    if (!this.grip) {
      const over = this.bufferAt(point);
      this.view.canvas.style.cursor = over >= 0 && this.attempt.canMove(over) ? "grab" : "default";
      return false;
    }
    const bytes = this.grip.from + (this.grip.y - point.y) / this.view.frame.byteHeight;
    this.attempt.offsets[this.held] = this.attempt.snapped(this.held, bytes, 1 / this.view.frame.byteHeight);
    this.view.canvas.style.cursor = "grabbing";
    this.view.draw();
    return true;
  }

  release() {
    if (this.grip && this.attempt.offsets[this.held] === this.grip.from) this.attempt.past.pop();
    this.grip = null;
    this.view.canvas.style.cursor = "";
    this.view.draw();
  }

  key(key) {
    const count = this.view.trace.buffers.size.length;
    const along = { ArrowLeft: -1, ArrowRight: 1 }[key];
    const up = { ArrowUp: 1, ArrowDown: -1 }[key];
    if (along) this.held = (this.held + along + count) % count;
    else if (up && this.held >= 0 && this.attempt.canMove(this.held)) this.nudge(up);
    else if (key === "u" || key === "U") this.attempt.undo();
    else return false;
    this.view.draw();
    return true;
  }

  nudge(up) {
    const unit = this.view.trace.alignment[this.held];
    this.attempt.remember();
    this.attempt.offsets[this.held] = Math.max(0, this.attempt.offsets[this.held] + up * unit);
  }

  draw(ctx) {
    const { view } = this;
    drawAttempt(ctx, view.frame, view.scene, this.attempt, { held: this.held }, view.theme);
    this.tell(view.side, this.attempt.judge());
    view.spots = [];
  }

  tell(side, verdict) {
    if (verdict.optimal && !this.grip && this.solved !== this.attempt) {
      this.solved = this.attempt;
      this.view.answered(-1);
    }
    const { rival, bound } = this.attempt.exercise;
    side.heading.textContent = verdict.optimal ? "That is the optimum" : "Make the arena as small as you can";
    const even = verdict.valid && verdict.arena === rival?.bytes;
    const against = verdict.beatsGreedy ? "beaten" : even ? "as good" : "not yet";
    const share = bound ? percent(verdict.gap / bound) : "";
    side.figures([
      ["Your arena", formatBytes(verdict.arena), rival ? `${rival.strategy}: ${formatBytes(rival.bytes)}` : ""],
      ["Gap to bound", verdict.gap < 0 ? "below it" : formatBytes(verdict.gap), verdict.gap < 0 ? "not possible without conflicts" : share],
      ["Conflicts", String(verdict.conflicts.length), verdict.conflicts.length ? "" : "valid"],
      ...(rival ? [["Against greedy", against, ""]] : []),
    ]);
    const mood = verdict.optimal || verdict.beatsGreedy ? "agrees" : verdict.valid ? "" : "disagrees";
    side.tell(verdict.sentence, mood);
    this.view.canvas.setAttribute("aria-label", verdict.sentence);
    side.looked.replaceChildren();
    this.actions(side.looked);
    this.clashes(side.looked, verdict.conflicts);
  }

  actions(parent) {
    const row = element("p", "actions", parent);
    const begin = (label, act) => button(row, label, label, () => {
      act();
      this.view.draw();
    }).classList.add("wide");
    begin("undo", () => this.attempt.undo());
    begin("stack them all", () => this.attempt.start(this.attempt.stacked()));
    const { rival } = this.attempt.exercise;
    if (rival) begin(`start from ${rival.strategy}`, () => this.attempt.start(rival.offsets));
  }

  clashes(parent, conflicts) {
    if (!conflicts.length) return;
    const { name } = this.view.trace.buffers;
    element("h4", "", parent, counted(conflicts.length, "conflict"));
    const list = element("ul", "rows", parent);
    for (const { one, other, low, high } of conflicts.slice(0, 8)) {
      const row = element("li", "row", list);
      element("span", "mark", row, "✕");
      element("span", "where", row, `${name[one]} and ${name[other]}`);
      element("span", "bytes", row, formatBytes(high - low));
    }
  }
}
