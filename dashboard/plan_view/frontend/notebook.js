// What a notebook calls (anywidget): the chart of the pages in a cell, its selection a trait of the model.

const FONTS = { "--st-font": "sans-serif", "--st-primary-color": "#3b6fa8" };
const GROUND = [
  { "--st-background-color": "#ffffff", "--st-text-color": "#31333f", "--st-border-color": "#d5d6da" },
  { "--st-background-color": "#111111", "--st-text-color": "#fafafa", "--st-border-color": "#45464c" },
];

/** Whether the cell stands on a dark ground: that of the first element around it that has one. */
function isDark(element) {
  for (let at = element; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (!color.startsWith("rgba(0, 0, 0, 0") && color !== "transparent") return luminance(parseColor(color)) < 0.4;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function render({ model, el }) {
  const host = element("div", "notebook-chart", el);
  const style = { ...FONTS, ...GROUND[isDark(el) ? 1 : 0] };
  for (const [name, value] of Object.entries(style)) host.style.setProperty(name, value);
  const hear = (name, value) => {
    if (name !== "selection") return;
    model.set("_report", value);
    model.save_changes();
  };
  let leave = () => {};
  const draw = () => {
    const { buffer, byteOffset, byteLength } = model.get("_message");
    const data = new Uint8Array(buffer, byteOffset, byteLength).slice();
    leave = show({ data, parentElement: host, setStateValue: hear, setTriggerValue: hear });
  };
  draw();
  model.on("change:_message", draw);
  return () => {
    model.off("change:_message", draw);
    host.remove();
    leave();
  };
}

export default { render };
