"""What the chart asks the server for while somebody zooms: a second component, which draws nothing.

It sits in a fragment of its own, so that a question runs nothing but its answer, and the chart's own data,
which holds the whole picture, does not travel again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import streamlit as st
from memplan_dashboard.plan_view.bundle import feed_script
from memplan_dashboard.plan_view.packing import pack
from memplan_dashboard.plan_view.panel import Panel
from memplan_dashboard.plan_view.windows import answers, parse_request
from streamlit.components.v2.types import ComponentRenderer


def show_feed(panels: Sequence[Panel], key: str, scene: int) -> None:
    """Answer what the chart called `key` asks about `panels`; `scene` says which picture of it is meant."""
    # Not in the fragment: the style takes it out of the flow, with what a fragment wraps around.
    with st.container(key=f"unseen_{key}_windows"):
        st.fragment(_answer)(panels, key, scene)


def _answer(panels: Sequence[Panel], key: str, scene: int) -> None:
    name = f"{key}_windows"
    kept = st.session_state.get(name)
    request = parse_request(kept.get("request") if kept else None, len(panels))
    shared = {"key": key, "scene": scene, "serial": request.serial if request else None}
    is_new = st.session_state.get(f"{name}:scene") != scene
    st.session_state[f"{name}:scene"] = scene
    near, wanted = answers(panels, request, is_new) if request else ([], [])
    _renderer()(key=name, data=pack(near, shared, wanted=wanted), on_request_change=_heard)


def _heard() -> None:
    """A component's value has a place in the session only when there is a callback for it."""


@cache
def _renderer() -> ComponentRenderer:
    return st.components.v2.component("memplan.plan_windows", js=feed_script())
