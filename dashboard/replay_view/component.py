"""Mounting the replay as a Streamlit v2 component; its script and style sheet come from frontend/."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

from memplan_engine.plotting.bundling import CHART_MODULES, bundle

FRONTEND = Path(__file__).parent / "frontend"
PLAN_VIEW = Path(__file__).parents[1] / "plan_view" / "frontend"
MODULES = (
    *CHART_MODULES,
    PLAN_VIEW / "color.js",
    PLAN_VIEW / "element.js",
    FRONTEND / "dom.js",
    FRONTEND / "trace.js",
    FRONTEND / "geometry.js",
    FRONTEND / "paint.js",
    FRONTEND / "candidates.js",
    FRONTEND / "tree.js",
    FRONTEND / "picture.js",
    FRONTEND / "guess.js",
    FRONTEND / "attempt.js",
    FRONTEND / "side.js",
    FRONTEND / "player.js",
    FRONTEND / "learner.js",
    FRONTEND / "hand.js",
    FRONTEND / "view.js",
    FRONTEND / "main.js",
)
"""In this order no module runs code that needs a later one."""


@cache
def script() -> str:
    """The modules in one."""
    return bundle(MODULES)


@cache
def styles() -> str:
    """The style sheet."""
    return (FRONTEND / "replay_view.css").read_text("utf-8")


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
