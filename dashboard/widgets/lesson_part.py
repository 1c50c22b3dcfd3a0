"""The lesson that the Replay page was opened with, above the picture; and opening one from another page."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Options
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.widgets.lessons import LESSONS, Place


def show_lesson() -> None:
    """The lesson that the URL names, if any, with its places and the way to the next one."""
    asked = state.get("lesson")
    if not asked:
        return
    number = parse_lesson(asked)
    if not number:
        st.warning(
            plain(f"lesson: found {asked[:40]!r}, expected 1 to {len(LESSONS)}."), icon=":material/info:"
        )
        state.choose(lesson="")
        return
    lesson = LESSONS[number - 1]
    with st.expander(f"Lesson {number} of {len(LESSONS)}: {lesson.title}", expanded=True):
        st.markdown(lesson.text)
        with st.container(horizontal=True):
            for place in lesson.places:
                here = _is_here(place, number)
                st.button(
                    place.label,
                    key=f"place_{number}_{place.label}",
                    type="primary" if here else "secondary",
                    on_click=go_to,
                    args=(place, number),
                )
            st.space("stretch")
            if number > 1:
                _to_lesson("Previous", ":material/arrow_back:", number - 1)
            if number < len(LESSONS):
                _to_lesson("Next lesson", ":material/arrow_forward:", number + 1)
            st.button(
                "Close", key="lesson_close", type="tertiary", on_click=state.choose, kwargs={"lesson": ""}
            )


def parse_lesson(text: str) -> int:
    """The number of the lesson that a URL names; 0 for none that there is."""
    return int(text) if text in map(str, range(1, len(LESSONS) + 1)) else 0


def go_to(place: Place, number: int) -> None:
    """Choose what `place` shows."""
    choices = place.choices(number)
    state.choose_document(choices.pop("doc"), Options())
    state.choose(**choices)


def _close() -> None:
    state.choose(lesson="")


def _is_here(place: Place, number: int) -> bool:
    wanted = place.choices(number)
    return all(state.get(name) == wanted[name] for name in ("doc", "strategy", "mode"))


def _to_lesson(label: str, icon: str, number: int) -> None:
    place = LESSONS[number - 1].places[0]
    st.button(label, key=f"lesson_{number}", icon=icon, type="tertiary", on_click=go_to, args=(place, number))
