"""The widgets that change what is planned: streams, reuse, unread values, the part of a recording."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.widgets.recording_part import has_parts, pick_part

from memplan_engine.preparation import PLANNING_OPTIONS, PlanningOption, Preparation

WITH_WIDGET = tuple(option for option in PLANNING_OPTIONS.values() if option.label)


def pick_preparation(document: Document) -> None:
    """A popover with all that can be asked of a graph, or which part of a recording is shown; nothing for
    other lists of buffers and finished plans."""
    is_graph = can_prepare(document)
    if not is_graph and not has_parts(document.key):
        return
    asked = count_asked(document.options.how) if is_graph else int(bool(document.options.part))
    label = f"Options ({asked})" if asked else "Options"
    with st.container(key="options"), st.popover(label, icon=":material/tune:", width="stretch"):
        if is_graph:
            show_switches(document.options.how)
        else:
            keep_part(document)


def can_prepare(document: Document) -> bool:
    """Whether `document` is a graph that can still be prepared in one way or another."""
    return document.graph is not None and document.plan is None


def count_asked(how: Preparation) -> int:
    """How many things are asked for beyond what there is without asking."""
    return sum(option.asked(how) for option in WITH_WIDGET)


def show_switches(how: Preparation, side: str = "") -> None:
    """The widgets; `side` stands before the names of what they choose."""
    for option in WITH_WIDGET:
        (_number if option.most else _switch)(option, how, side)


def keep_part(document: Document, side: str = "") -> None:
    """Which part of the recording is shown; another one drops the selection and the changes."""

    def taken(part: str) -> None:
        state.choose(**{f"{side}part": part, "selected": "", "changed": "", "what_if": ""})

    pick_part(document.key, document.options.part, taken, f"{side}part_widget")


def _number(option: PlanningOption, how: Preparation, side: str) -> None:
    key = f"{side}{option.parameter}_widget"
    st.session_state[key] = getattr(how, option.name)

    def changed() -> None:
        state.choose(**{f"{side}{option.parameter}": str(st.session_state[key] or "")})

    st.number_input(
        option.label,
        min_value=1,
        max_value=option.most,
        step=1,
        value=None,
        placeholder=option.unit,
        key=key,
        on_change=changed,
        help=option.told,
    )


def _switch(option: PlanningOption, how: Preparation, side: str) -> None:
    """On: the value that is not the default, of the two that there are."""
    key = f"{side}{option.parameter}_widget"
    st.session_state[key] = option.asked(how)
    on = "1" if option.kind is bool else next(str(value) for value in option.kind if value != option.default)

    def changed() -> None:
        state.choose(**{f"{side}{option.parameter}": on if st.session_state[key] else ""})

    st.checkbox(option.label, key=key, on_change=changed, help=option.told)
