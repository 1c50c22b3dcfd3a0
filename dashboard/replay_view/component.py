"""Mounting the replay as a Streamlit v2 component."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import streamlit as st
from memplan_dashboard.replay_view.bundle import script, styles
from streamlit.components.v2.types import ComponentRenderer


def replay_view(message: bytes, *, serial: int, key: str, on_step: Callable[[int], None]) -> None:
    """Show a message of `make_message`; `on_step` hears, after a pause, at which step (0 …) the reader is.

    Nothing is drawn anew while the message stays the same, so that the page may run as often as it likes.
    Reports of a message with another `serial` are left out: the page has gone on since.
    """

    def moved() -> None:
        report = st.session_state[key].get("step")
        if isinstance(report, dict) and report.get("serial") == serial:
            step = report.get("step")
            if isinstance(step, int):
                on_step(step)

    _renderer()(key=key, data=message, on_step_change=moved)


@cache
def _renderer() -> ComponentRenderer:
    return st.components.v2.component("memplan.replay_view", css=styles(), js=script())
