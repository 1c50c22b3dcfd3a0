"""Learn: eight short lessons, from lifetimes to recomputation; each opens the Replay page."""

from __future__ import annotations

from typing import Literal

import streamlit as st
from memplan_dashboard.session import progress, state
from memplan_dashboard.widgets import lessons
from memplan_dashboard.widgets.lessons import LESSONS, choices_of


def _lesson(number: int) -> None:
    lesson = LESSONS[number - 1]
    with st.container(border=True, height="stretch"):
        st.subheader(f"{number}. {lesson.title}", anchor=False)
        st.html(lessons.picture_html(lesson, dark=st.context.theme.type == "dark"))
        st.markdown(lesson.text)
        lessons.show_answer(number)
        with st.container(horizontal=True):
            for place in lesson.places:
                first = place is lesson.places[0]
                kind: Literal["primary", "secondary"] = "primary" if first else "secondary"
                if st.button(place.label, key=f"learn_{number}_{place.label}", type=kind):
                    state.lead_on("views/replay_strategy.py", **choices_of(place, number))


def _page() -> None:
    st.markdown(
        "How a planner decides where buffers go, in eight lessons. Each opens on the Replay page, where "
        "you step through, predict, or place by hand."
    )
    done = len(progress.done() & set(range(1, len(LESSONS) + 1)))
    st.progress(done / len(LESSONS), f"{done} of {len(LESSONS)} lessons done")
    state.wait_for_kernels()
    for first in range(1, len(LESSONS) + 1, 2):
        columns = st.container(key=f"halves_lessons_{first}").columns(2)
        for column, number in zip(columns, range(first, min(first + 2, len(LESSONS) + 1)), strict=False):
            with column:
                _lesson(number)


_page()
