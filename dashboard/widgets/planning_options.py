"""The widgets that change what is planned: streams, reuse, unread values, the part of a recording."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.url import MOST_STREAMS
from memplan_dashboard.widgets.recording_part import has_parts, pick_part

from memplan_engine import Unread
from memplan_engine.preparation import Preparation


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
    switches = (how.round_sizes, how.plan_inputs, how.in_place, how.concat, how.unread is Unread.HELD)
    return sum((how.streams is not None, *switches))


def show_switches(how: Preparation, side: str = "") -> None:
    """The widgets; `side` stands before the names of what they choose."""
    _streams(how.streams, side)
    for label, name, current, value, told in (
        ("Write in place", "in_place", how.in_place, "1", "Elementwise ops, into an input that dies."),
        ("Concatenate without copies", "concat", how.concat, "1", "Inputs made inside the output."),
        ("Give graph inputs a place", "inputs", how.plan_inputs, "1", "They belong to the caller."),
        (
            "Hold values that nobody reads",
            "unread",
            how.unread is Unread.HELD,
            str(Unread.HELD),
            "To the last step, as fx.Interpreter does; a planned arena frees them at once.",
        ),
        ("Round sizes up", "round", how.round_sizes, "1", "To the alignment, as AITemplate does."),
    ):
        _switch(label, f"{side}{name}", current, value, told)


def keep_part(document: Document, side: str = "") -> None:
    """Which part of the recording is shown; another one drops the selection and the changes."""

    def taken(part: str) -> None:
        state.choose(**{f"{side}part": part, "selected": "", "changed": "", "what_if": ""})

    pick_part(document.key, document.options.part, taken, f"{side}part_widget")


def _streams(current: int | None, side: str) -> None:
    key = f"{side}streams_widget"
    st.session_state[key] = current

    def changed() -> None:
        state.choose(**{f"{side}streams": str(st.session_state[key] or "")})

    st.number_input(
        "Streams",
        min_value=1,
        max_value=MOST_STREAMS,
        step=1,
        value=None,
        placeholder="one op after another",
        key=key,
        on_change=changed,
        help="Ops run as soon as they can, at most this many at one step (AITemplate's simple multi-stream).",
    )


def _switch(label: str, name: str, current: bool, value: str, told: str) -> None:
    key = f"{name}_widget"
    st.session_state[key] = current
    st.checkbox(label, key=key, on_change=_taker(name, key, value), help=told)


def _taker(name: str, key: str, value: str) -> Callable[[], None]:
    return lambda: state.choose(**{name: value if st.session_state[key] else ""})
