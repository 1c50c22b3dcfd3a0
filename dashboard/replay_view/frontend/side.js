// Beside the picture: which buffer, the figures, why here, what was looked at, and the lit line of the code.

import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { element } from "../../plan_view/frontend/element.js";
import { counted, percent, span } from "./dom.js";
import { TAKEN } from "./trace.js";

const MOST_CHIPS = 24;

export class Side {
  constructor(parent) {
    this.root = element("section", "side", parent);
    this.heading = element("h3", "heading", this.root);
    this.facts = element("dl", "facts", this.root);
    this.sentence = element("p", "sentence", this.root);
    this.sentence.setAttribute("aria-live", "polite");
    this.looked = element("div", "looked", this.root);
    this.code = element("ol", "code", this.root);
    this.code.setAttribute("aria-label", "pseudo-code");
    this.lines = [];
  }

  /** The code of a strategy, once; `light` then only moves the light. */
  showCode(code) {
    this.code.replaceChildren();
    this.lines = code.map((text) => element("li", "line", this.code, text));
    const least = Math.min(...code.map((text) => text.search(/\S/)));
    this.lines.forEach((line, i) => line.style.setProperty("--indent", code[i].search(/\S/) - least));
    this.lines.forEach((line) => { line.textContent = line.textContent.trim(); });
  }

  light(number) {
    this.lines.forEach((line, i) => {
      line.classList.toggle("lit", i === number);
      if (i === number) line.setAttribute("aria-current", "step");
      else line.removeAttribute("aria-current");
    });
  }

  show(trace, step, placed) {
    this.head(trace, step);
    this.figures(figuresOf(trace, step));
    this.sentence.textContent = trace.steps.sentence[step];
    this.sentence.className = "sentence";
    this.looked.replaceChildren();
    this.candidates(trace, step);
    this.active(trace, step, placed);
    this.light(trace.steps.line[step]);
  }

  head(trace, step) {
    const own = trace.buffer(step);
    this.heading.replaceChildren();
    if (own < 0) {
      this.heading.textContent = `Within ${formatBytes(trace.tree.capacity[step])}?`;
      return;
    }
    const { name, label, size, start, end } = trace.buffers;
    element("span", "name", this.heading, label[own]);
    const known = name[own] === label[own] ? "" : ` · ${name[own]} in the graph`;
    const { length } = trace.piecesOf[own];
    const pieces = length > 1 ? `, in ${formatCount(length)} pieces` : "";
    element("span", "detail", this.heading,
      `${formatBytes(size[own])}, live in ${span(start[own], end[own])}${pieces}${known}`);
  }

  figures(pairs) {
    this.facts.replaceChildren();
    for (const [label, value, note] of pairs) {
      const fact = element("div", "fact", this.facts);
      element("dt", "", fact, label);
      const shown = element("dd", "", fact, value);
      if (note) element("small", "", shown, note);
    }
  }

  candidates(trace, step) {
    const rows = trace.objects ? trace.objectsAt(step).map(objectRow) : trace.holesAt(step).map(holeRow);
    if (!rows.length) return;
    const scan = trace.family === "linear scan";
    element("h4", "", this.looked, trace.objects ? "Objects" : scan ? "Free list" : "Holes");
    const list = element("ul", "rows", this.looked);
    for (const { where, size, reason, taken } of rows) {
      const row = element("li", taken ? "row taken" : "row", list);
      element("span", "mark", row, taken ? "✓" : "✕");
      element("span", "where", row, where);
      element("span", "bytes", row, size);
      element("span", "reason", row, reason);
    }
    const taken = list.querySelector(".taken");
    if (taken) list.scrollTop = taken.offsetTop - list.offsetTop - list.clientHeight / 2;
    const more = trace.more(step);
    if (more) element("p", "rest", this.looked, `and ${formatCount(more)} more`);
  }

  /** The active set of a linear scan. */
  active(trace, step, placed) {
    if (trace.family !== "linear scan") return;
    const live = trace.liveAt(step, placed);
    element("h4", "", this.looked, live.length ? `Active set, ${counted(live.length, "buffer")}` : "Active set: empty");
    const chips = element("p", "chips", this.looked);
    for (const each of live.slice(0, MOST_CHIPS)) {
      element("span", "chip", chips, `${trace.buffers.label[each]} until ${trace.buffers.end[each]}`);
    }
    if (live.length > MOST_CHIPS) element("span", "rest", chips, `and ${live.length - MOST_CHIPS} more`);
  }

  /** Words of a mode of its own instead of those of the replay. */
  tell(text, mood = "") {
    this.sentence.textContent = text;
    this.sentence.className = `sentence ${mood}`;
  }
}

function figuresOf(trace, step) {
  const arena = trace.steps.arena[step];
  const grown = arena - trace.arenaBefore(step);
  const left = trace.steps.bytes_left[step];
  const facts = [
    ["Arena so far", formatBytes(arena), grown > 0 ? `+${formatBytes(grown)}` : `of ${formatBytes(trace.arena_bytes)}`],
    ["Bytes still to place", formatBytes(left), ""],
  ];
  if (trace.tree) {
    const { bound, outcome, outcomes, capacity } = trace.tree;
    const shown = outcomes[outcome[step]];
    facts.push(["Bound here", formatBytes(bound[step]), `asked: ${formatBytes(capacity[step])}`]);
    facts.push(["Node", shown === "branched" ? "branches" : shown === "solved" ? "solved" : "pruned",
      shown === "branched" || shown === "solved" ? "" : shown]);
    return facts;
  }
  facts.push(["Offset", formatBytes(trace.steps.offset[step]), ""]);
  if (trace.lower_bound_bytes) {
    const over = trace.arena_bytes / trace.lower_bound_bytes - 1;
    facts.push(["Final arena", formatBytes(trace.arena_bytes), over ? `${percent(over)} over bound` : "the bound"]);
  }
  return facts;
}

function holeRow(hole) {
  return {
    where: `at ${formatBytes(hole.low)}`,
    size: hole.size === null ? "top of stack" : formatBytes(hole.size),
    reason: hole.state === TAKEN ? "chosen" : hole.reason,
    taken: hole.state === TAKEN,
  };
}

function objectRow(object) {
  return {
    where: `object ${object.number}`,
    size: formatBytes(object.size),
    reason: object.state === TAKEN ? "chosen" : object.reason,
    taken: object.state === TAKEN,
  };
}
