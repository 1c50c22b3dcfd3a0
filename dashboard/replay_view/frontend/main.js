// What Streamlit calls: once when the component appears, and again whenever its data or the theme change.

import { ReplayView } from "./view.js";

const VIEWS = new WeakMap();

export default function show({ data, parentElement, setStateValue }) {
  if (!VIEWS.has(parentElement)) VIEWS.set(parentElement, new ReplayView(parentElement));
  const view = VIEWS.get(parentElement);
  view.update(data, setStateValue);
  // Streamlit also calls this for a run that another one has overtaken: only a view that left the page is done.
  return () => setTimeout(() => {
    if (view.root.isConnected) return;
    view.dispose();
    VIEWS.delete(parentElement);
  });
}
