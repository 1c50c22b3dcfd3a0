// What pointer and keys do, as a dialog.

import { element } from "./element.js";

const KEYS = [
  ["Wheel", "scroll the page; zoom once the chart was clicked"],
  ["Ctrl + wheel", "zoom; with Shift memory only, with Alt time only"],
  ["Drag", "move the view"],
  ["+ −, w s", "zoom in and out"],
  ["f", "zoom to the selection, or to what lies between two steps"],
  ["0, double click", "show everything"],
  ["Shift + arrows, a d", "move the view"],
  ["Click, arrows", "select a buffer, the next one"],
  ["Click below the chart", "mark a step; drag to scrub"],
  ["Shift + click below", "mark a second step"],
  [", .", "one step back, one on"],
  ["n p", "next and previous local peak"],
  ["m, drag", "measure bytes × steps"],
  ["/", "find; Enter and Shift + Enter step through the matches"],
  ["Esc", "clear the measurement, then selection and marks, then leave the chart"],
  ["?", "show these keys"],
];

export class KeyMap {
  constructor(parent) {
    this.dialog = element("dialog", "key-map", parent);
    this.dialog.setAttribute("aria-label", "Keys of the chart");
    element("h2", "heading", this.dialog, "Keys");
    const list = element("dl", "keys", this.dialog);
    for (const [keys, act] of KEYS) {
      element("dt", "key", list, keys);
      element("dd", "act", list, act);
    }
    const close = element("button", "tool", this.dialog, "Close");
    close.type = "button";
    close.addEventListener("click", () => this.dialog.close());
    // A click on the ground around it, which belongs to the dialog itself.
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
  }

  open() {
    this.dialog.showModal();
  }
}
