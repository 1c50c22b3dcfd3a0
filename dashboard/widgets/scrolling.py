"""A part of the page that a button opens below the fold is brought into view."""

from __future__ import annotations

from functools import cache

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

ASKED = "scroll_to"
FOLLOW = """export default function ({ data, parentElement }) {
  const part = document.querySelector(`.st-key-${data.key}`);
  if (!part || parentElement.scrolled) return;
  parentElement.scrolled = true;
  const show = () => part.scrollIntoView({ block: "start" });
  // What is in the part may come later and make room to scroll: followed until somebody else scrolls.
  const sizes = new ResizeObserver(show);
  const kinds = ["wheel", "pointerdown", "keydown"];
  const end = () => {
    sizes.disconnect();
    kinds.forEach((kind) => removeEventListener(kind, end));
  };
  kinds.forEach((kind) => addEventListener(kind, end, { passive: true }));
  sizes.observe(part);
  setTimeout(end, 3000);
  show();
}"""


def ask_to_scroll(key: str) -> None:
    """Have the page scroll to the element of this key when it is drawn next: for callbacks."""
    st.session_state[ASKED] = key


def scroll_if_asked(key: str) -> None:
    """Scroll to the element of this key, drawn before, if that was asked for."""
    if st.session_state.get(ASKED) == key:
        del st.session_state[ASKED]
        with st.container(key="unseen_scroll"):
            _scroller()(key="scroller", data={"key": key})


@cache
def _scroller() -> ComponentRenderer:
    return st.components.v2.component("memplan.scroll", js=FOLLOW)
