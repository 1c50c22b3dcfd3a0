// The field that finds a buffer, as people know it or by its name in the graph, and goes to its decision.

import { element } from "../../plan_view/frontend/element.js";

const MOST_OFFERED = 40;

export class Finder {
  /** `go(step)` shows a step, `at()` says which one is shown. */
  constructor(parent, go, at) {
    Object.assign(this, { go, at });
    this.field = element("input", "find", parent);
    Object.assign(this.field, { type: "search", placeholder: "Find a buffer", autocomplete: "off" });
    this.field.title = "Enter goes to its decision, and on to the next that matches";
    this.field.setAttribute("aria-label", "Find a buffer");
    this.offers = element("datalist", "", parent);
    this.offers.id = "replay-buffers";
    this.field.setAttribute("list", this.offers.id);
    this.told = element("output", "found", parent);
    this.field.addEventListener("input", () => this.look());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next();
    });
  }

  /** Look among the buffers of `trace`. */
  load(trace) {
    this.trace = trace;
    this.texts = trace.buffers.label.map((label, each) => [label, trace.buffers.name[each]]);
    this.lower = this.texts.map((names) => names.join("\n").toLowerCase());
    this.field.value = "";
    this.look();
  }

  /** The steps whose buffer matches; those alone whose name is exactly that. */
  matches() {
    const wanted = this.field.value.trim();
    if (!wanted) return [];
    const own = this.texts.findIndex((texts) => texts.includes(wanted));
    const sought = wanted.toLowerCase();
    const hit = own >= 0 ? (buffer) => buffer === own : (buffer) => buffer >= 0 && this.lower[buffer].includes(sought);
    return [...this.trace.steps.buffer.keys()].filter((step) => hit(this.trace.steps.buffer[step]));
  }

  look() {
    const steps = this.matches();
    const buffers = [...new Set(steps.map((step) => this.trace.steps.buffer[step]))].slice(0, MOST_OFFERED);
    this.offers.replaceChildren(...buffers.map((buffer) => {
      const [value, name] = this.texts[buffer];
      const label = name === value ? value : `${value} (${name})`;
      return Object.assign(document.createElement("option"), { value, label });
    }));
    const chosen = buffers.length === 1 && this.texts[buffers[0]].includes(this.field.value.trim());
    if (chosen) this.go(steps[0]);
    this.tell(steps);
  }

  next() {
    const steps = this.matches();
    if (steps.length) this.go(steps.find((step) => step > this.at()) ?? steps[0]);
    this.tell(steps);
  }

  tell(steps) {
    const place = steps.indexOf(this.at()) + 1;
    const found = steps.length ? `${place ? `${place} of ` : ""}${steps.length.toLocaleString("en-US")} found` : "none found";
    this.told.textContent = this.field.value.trim() ? found : "";
  }
}
