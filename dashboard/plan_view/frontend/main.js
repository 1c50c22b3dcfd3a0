// What Streamlit calls: once when the component appears, and again whenever its data or the theme change.

import { Chart } from "./chart.js";

const CHARTS = new WeakMap();
const MEMORY = new Map();

export default function show({ data, parentElement, setStateValue, setTriggerValue }) {
  if (!CHARTS.has(parentElement)) CHARTS.set(parentElement, new Chart(parentElement, MEMORY));
  const chart = CHARTS.get(parentElement);
  chart.update(data, setStateValue, setTriggerValue);
  const shown = chart.shown = (chart.shown ?? 0) + 1;
  // Streamlit also calls this for a run that another one has overtaken, and may put the same element up again
  // before it stands in the page: only a chart that left the page for good is done.
  return () => setTimeout(() => {
    if (chart.root.isConnected || chart.shown !== shown) return;
    chart.dispose();
    CHARTS.delete(parentElement);
  });
}
