// Predict mode: at each step the learner says first where the buffer goes.

import { formatBytes } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "../../plan_view/frontend/element.js";
import { button, span } from "./dom.js";
import { judgeGuess, judgeObject } from "./guess.js";
import { drawGuess, drawQuestion } from "./picture.js";

const SNAP = 7;

export class Learner {
  /** `view` is the component; the score lasts as long as its data. */
  constructor(view) {
    this.view = view;
    this.score = { right: 0, asked: 0, trace: null };
  }

  /** A new question. */
  begin() {
    this.answer = null;
    this.ghost = -1;
    if (this.score.trace !== this.view.trace) this.score = { right: 0, asked: 0, trace: this.view.trace };
  }

  /** Whether the question is open. A buffer without bytes, or one that is fixed, is no question. */
  get asking() {
    const { trace, step } = this.view;
    const own = trace.buffer(step);
    return !this.answer?.agrees && !this.answer?.shown && own >= 0 && trace.buffers.size[own] > 0 && trace.fixed[own] < 0;
  }

  /** The offset under the pointer: the middle of the buffer follows it, edges of neighbours draw it in. */
  offsetAt(point) {
    const { trace, step, frame } = this.view;
    const own = trace.buffer(step);
    const [size, unit] = [trace.buffers.size[own], trace.alignment[own]];
    const middle = frame.bytesAt(point.y) - size / 2;
    let [best, distance] = [Math.max(0, Math.round(middle / unit) * unit), SNAP / frame.byteHeight];
    const placed = trace.placedAt(step - 1);
    const edges = [0];
    placed.forEach((low, each) => {
      if (low < 0 || !trace.meets(each, own)) return;
      edges.push(Math.ceil((low + trace.buffers.size[each]) / unit) * unit);
    });
    for (const edge of edges) {
      if (Math.abs(edge - middle) < distance) [best, distance] = [edge, Math.abs(edge - middle)];
    }
    return best;
  }

  move(point) {
    if (!this.asking) return undefined;
    this.ghost = point.y < this.view.frame.bottom ? this.ghostAt(point) : -1;
    this.view.draw();
    return true;
  }

  /** Among shared objects it lies where the lane under the pointer begins. */
  ghostAt(point) {
    const { lanes } = this.view.trace;
    if (!lanes) return this.offsetAt(point);
    const lane = this.laneAt(point);
    return lane < 0 ? -1 : lanes[lane].low;
  }

  leave() {
    if (!this.asking) return;
    this.ghost = -1;
    this.view.draw();
  }

  release(point) {
    if (!this.asking || point.y >= this.view.frame.bottom) return;
    if (this.view.trace.lanes) this.judge(null, this.laneAt(point));
    else this.judge(this.offsetAt(point), -1);
  }

  laneAt(point) {
    const { trace, step, frame } = this.view;
    const bytes = frame.bytesAt(point.y);
    const sizes = trace.objectSizes(step);
    return trace.lanes.findIndex(({ low }, number) => sizes[number] && low <= bytes && bytes < low + sizes[number]);
  }

  judge(offset, lane) {
    const { trace, step } = this.view;
    const verdict = offset === null ? judgeObject(trace, step, lane) : judgeGuess(trace, step, offset);
    if (!this.answer) {
      this.score.asked += 1;
      this.score.right += verdict.agrees ? 1 : 0;
    }
    this.answer = { ...verdict, guess: offset };
    this.ghost = offset ?? -1;
    this.view.draw();
    if (!verdict.agrees) return;
    this.view.answered(step);
    this.view.canvas.focus({ preventScroll: true });
  }

  key(key) {
    const { trace, step } = this.view;
    if (!this.asking || trace.lanes) return false;
    const unit = trace.alignment[trace.buffer(step)];
    if (key === "ArrowUp") this.ghost = this.ghost < 0 ? 0 : this.ghost + unit;
    else if (key === "ArrowDown") this.ghost = Math.max(0, this.ghost - unit);
    else if (key === "Enter" && this.ghost >= 0) this.judge(this.ghost, -1);
    else return false;
    this.view.draw();
    return true;
  }

  draw(ctx) {
    const { view, answer } = this;
    drawQuestion(ctx, view.frame, view.scene, view.step, this.ghost, answer, view.theme);
    view.spots = [];
    const { side, trace } = view;
    const own = trace.buffer(view.step);
    const { name, size, start, end } = trace.buffers;
    side.head(trace, view.step);
    side.figures([["Score", `${this.score.right} of ${this.score.asked}`, "at the first try"]]);
    side.looked.replaceChildren();
    side.light(-1);
    const what = trace.lanes ? "Which object takes it? Click a lane, or empty space for a new object."
      : "Where does it go? Click the place.";
    const question = `${name[own]}, ${formatBytes(size[own])}, lives in ${span(start[own], end[own])}. ${what}`;
    side.tell(answer ? answer.sentence : question, answer ? "disagrees" : "");
    view.canvas.setAttribute("aria-label", answer ? answer.sentence : question);
    if (answer) this.offer(side.looked);
  }

  offer(parent) {
    const row = element("p", "actions", parent);
    element("span", "rest", row, "Try again, or");
    button(row, "show the answer", "show me", () => {
      this.answer = { ...this.answer, shown: true };
      this.view.answered(this.view.step);
      this.view.draw();
    }).classList.add("wide");
  }

  /** Over the picture of the step itself, once it is answered. */
  afterwards(ctx) {
    const { view, answer } = this;
    if (!answer) return;
    if (!answer.agrees && answer.guess !== null) {
      drawGuess(ctx, view.frame, view.scene, view.step, answer.guess, view.theme);
    }
    const told = answer.agrees ? answer.sentence : `${answer.sentence} ${view.trace.steps.sentence[view.step]}`;
    view.side.tell(told, answer.agrees ? "agrees" : "disagrees");
    if (view.step === view.player.count - 1) {
      element("p", "rest", view.side.looked, `Done: ${this.score.right} of ${this.score.asked} at the first try.`);
      return;
    }
    const row = element("p", "actions", view.side.looked);
    button(row, "next question (→)", "next ►", () => view.player.jump(view.step + 1)).classList.add("wide");
  }
}
