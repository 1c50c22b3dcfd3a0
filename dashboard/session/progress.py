"""How far a visitor has come in the course: kept beside the uploads, for as long as they are."""

from __future__ import annotations

from contextlib import suppress

import streamlit as st
from memplan_dashboard.session import uploads

FILE = "lessons"


def done() -> frozenset[int]:
    """The numbers of the lessons whose question the visitor has answered."""
    numbers: set[int] = set(st.session_state.setdefault("lessons_done", set()))
    with suppress(OSError):
        words = (uploads.folder() / FILE).read_text("ascii", "replace")[:100].split()
        numbers.update(int(word) for word in words if word.isdecimal())
    return frozenset(numbers)


def add(number: int) -> None:
    """The question of that lesson is answered. Where nothing can be written it is known to this page only."""
    numbers = {*done(), number}
    st.session_state["lessons_done"] = numbers
    with suppress(OSError):
        uploads.folder().mkdir(parents=True, exist_ok=True)
        (uploads.folder() / FILE).write_text(" ".join(map(str, sorted(numbers))), "ascii")
