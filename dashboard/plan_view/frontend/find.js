// The search field above the chart: how many buffers were found, their bytes, and the way from one to the next.
// The server searches; what it did not find comes back dimmed.

import { formatBytes, formatCount } from "../../../memplan_engine/plotting/frontend/format.js";
import { ownerOf } from "../../../memplan_engine/plotting/frontend/columns.js";
import { element } from "./element.js";

const TYPING = 300;

export class Find {
  constructor(parent, chart) {
    this.chart = chart;
    this.box = element("div", "find", parent);
    this.box.setAttribute("role", "search");
    this.field = element("input", "field", this.box);
    Object.assign(this.field, { type: "search", maxLength: 202, spellcheck: false, placeholder: "Find, /regex/" });
    this.field.setAttribute("aria-label", "Find by name, module or op; a regular expression between slashes");
    this.field.title = "Searches name, module and op. Put a regular expression between slashes: /attn|mlp/";
    this.count = element("span", "count", this.box);
    this.count.setAttribute("aria-live", "polite");
    this.back = this.arrow("‹", "Previous match (Shift + Enter)", -1);
    this.on = this.arrow("›", "Next match (Enter)", 1);
    this.field.addEventListener("input", () => this.later());
    this.field.addEventListener("keydown", (event) => this.onKey(event));
    chart.on("select", () => this.tell());
  }

  arrow(text, label, sign) {
    const made = element("button", "tool", this.box, text);
    made.type = "button";
    made.title = label;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", () => this.go(sign));
    return made;
  }

  /** Take what the server found, {text, pattern, count, nbytes}; null where the page searches nothing. */
  show(found, data) {
    this.found = found;
    this.box.hidden = !found;
    if (!found) return;
    const typing = this.box.getRootNode().activeElement === this.field;
    if (!typing || this.sent === found.text) this.asked = found.text;
    if (!typing) this.field.value = found.text;
    this.matches = found.pattern === "" ? [] : matchesOf(data.far ?? data);
    this.tell();
  }

  tell() {
    if (!this.found) return;
    const { pattern, count, nbytes } = this.found;
    const at = this.matches.indexOf(this.chart.kept.selected);
    const place = at < 0 || this.matches.length < count ? "" : `${formatCount(at + 1)} of `;
    const words = count === 0 ? "none" : `${place}${formatCount(count)} · ${formatBytes(nbytes)}`;
    this.count.textContent = pattern === "" ? "" : words;
    this.back.disabled = this.matches.length === 0;
    this.on.disabled = this.back.disabled;
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), TYPING);
  }

  /** Have the server look for what is in the field; whether that is new. */
  ask() {
    clearTimeout(this.timer);
    const text = this.field.value;
    if (text === this.asked) return false;
    [this.asked, this.sent] = [text, text];
    this.chart.trigger("find", { text });
    return true;
  }

  /** Select the next one found, or the one before. */
  go(sign) {
    const { length } = this.matches;
    if (length === 0) return;
    const at = this.matches.indexOf(this.chart.kept.selected);
    const first = sign > 0 ? 0 : length - 1;
    this.chart.selection.goTo(this.matches[at < 0 ? first : (at + sign + length) % length]);
  }

  onKey(event) {
    if (event.key === "Enter") {
      if (!this.ask()) this.go(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      this.field.value = "";
      this.ask();
      this.chart.panels[0].stage.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** The buffers that are not dimmed, in the order in which they begin. */
function matchesOf(data) {
  const first = new Map();
  for (let rect = 0; rect < data.count; rect += 1) {
    const buffer = ownerOf(data, rect);
    if (data.dimmed?.[rect] || first.get(buffer) <= data.start[rect]) continue;
    first.set(buffer, data.start[rect]);
  }
  return [...first.keys()].sort((a, b) => first.get(a) - first.get(b));
}
