// The bar above the picture: ◄ ►, play with a speed, the slider, and the keys that do the same.

import { element } from "../../plan_view/frontend/element.js";
import { button, clamp } from "./dom.js";

const SPEEDS = [0.5, 1, 2, 5, 20];
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };

export class Player {
  /** `go(step)` shows a step. */
  constructor(parent, go) {
    this.go = go;
    this.count = 1;
    this.step = 0;
    this.root = element("div", "player", parent);
    button(this.root, "first (Home)", "|◄", () => this.jump(0));
    button(this.root, "one back (←)", "◄", () => this.jump(this.step - 1));
    this.toggle = button(this.root, "play (space)", "▶", () => this.play(!this.timer));
    button(this.root, "one on (→)", "►", () => this.jump(this.step + 1));
    button(this.root, "last (End)", "►|", () => this.jump(this.count - 1));
    this.slider = element("input", "slider", this.root);
    Object.assign(this.slider, { type: "range", min: 1, step: 1 });
    this.slider.setAttribute("aria-label", "decision");
    this.slider.addEventListener("input", () => this.jump(Number(this.slider.value) - 1));
    this.place = element("output", "place", this.root);
    this.speed = element("select", "speed", this.root);
    this.speed.setAttribute("aria-label", "steps a second");
    for (const each of SPEEDS) element("option", "", this.speed, `${each} / s`).value = each;
    this.speed.value = "1";
    this.speed.addEventListener("change", () => this.timer && this.play(true));
    this.onKey = (event) => this.key(event);
    document.addEventListener("keydown", this.onKey);
  }

  /** A trace of `count` steps, at `step`. */
  load(count, step, word) {
    clearInterval(this.timer);
    this.timer = 0;
    this.play(false);
    this.count = count;
    this.word = word;
    this.slider.max = Math.max(1, count);
    this.speed.value = count > 60 ? "5" : "1";
    this.show(clamp(step, 0, Math.max(0, count - 1)));
  }

  show(step) {
    this.step = step;
    this.slider.value = step + 1;
    const share = this.count > 1 ? step / (this.count - 1) : 1;
    this.slider.style.setProperty("--done", `${100 * share}%`);
    this.place.textContent = `${this.word} ${(step + 1).toLocaleString("en-US")} of ${this.count.toLocaleString("en-US")}`;
  }

  jump(step, playing = false) {
    if (!playing) this.play(false);
    const to = clamp(step, 0, this.count - 1);
    if (to === this.step || this.blocked?.()) return;
    this.show(to);
    this.go(to);
  }

  play(on) {
    clearInterval(this.timer);
    const played = this.timer;
    this.timer = 0;
    if (played && !on) this.stopped?.();
    if (on && !this.blocked?.()) {
      if (this.step === this.count - 1) this.jump(0);
      this.timer = setInterval(() => {
        this.jump(this.step + 1, true);
        if (this.step === this.count - 1) this.play(false);
      }, 1000 / Number(this.speed.value));
    }
    this.toggle.textContent = this.timer ? "❙❙" : "▶";
    const label = this.timer ? "pause (space)" : "play (space)";
    this.toggle.title = label;
    this.toggle.setAttribute("aria-label", label);
  }

  /** Keys count wherever nothing else wants them: not in fields, and not in the page's other widgets. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || this.root.hidden) return;
    if (!this.isOurs(event)) return;
    if (event.key in KEYS) this.jump(this.step + KEYS[event.key] * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home") this.jump(0);
    else if (event.key === "End") this.jump(this.count - 1);
    else if (event.key === " ") this.play(!this.timer);
    else return;
    event.preventDefault();
  }

  isOurs(event) {
    const [target] = event.composedPath();
    if (target === this.speed) return false;
    if (target.tagName === "BUTTON") return event.key !== " ";
    const home = this.root.getRootNode();
    if (home.contains?.(target) && this.root.parentNode.contains(target)) return true;
    return target === document.body || target === document.documentElement || target.dataset?.testid === "stMain";
  }

  dispose() {
    this.play(false);
    document.removeEventListener("keydown", this.onKey);
  }
}
