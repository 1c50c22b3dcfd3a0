"""The widgets that change what is planned: streams, reuse, rounding, values that nobody reads."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import state
from dashboard.choices import MOST_STREAMS
from dashboard.documents import Document
from memplan_engine import Unread


def pick_preparation(document: Document) -> None:
    """A popover with all that can be asked of a graph; nothing for lists of buffers and finished plans."""
    if document.graph is None or document.plan is not None:
        return
    how = document.options.how
    switches = (how.round_sizes, how.plan_inputs, how.in_place, how.concat, how.unread is Unread.HELD)
    asked = sum((how.streams is not None, *switches))
    label = f"Options ({asked})" if asked else "Options"
    with st.container(key="options"), st.popover(label, icon=":material/tune:", width="stretch"):
        _streams(how.streams)
        _switch("Write in place", "in_place", how.in_place, "1", "Elementwise ops, into an input that dies.")
        _switch("Concatenate without copies", "concat", how.concat, "1", "Inputs made inside the output.")
        _switch("Give graph inputs a place", "inputs", how.plan_inputs, "1", "They belong to the caller.")
        _switch(
            "Hold values that nobody reads",
            "unread",
            how.unread is Unread.HELD,
            str(Unread.HELD),
            "To the last step, as fx.Interpreter does; a planned arena frees them at once.",
        )
        _switch("Round sizes up", "round", how.round_sizes, "1", "To the alignment, as AITemplate does.")


def _streams(current: int | None) -> None:
    st.session_state.streams_widget = current

    def changed() -> None:
        state.choose(streams=str(st.session_state.streams_widget or ""))

    st.number_input(
        "Streams",
        min_value=1,
        max_value=MOST_STREAMS,
        step=1,
        value=None,
        placeholder="one op after another",
        key="streams_widget",
        on_change=changed,
        help="Ops run as soon as they can, at most this many at one step (AITemplate's simple multi-stream).",
    )


def _switch(label: str, name: str, current: bool, value: str, told: str) -> None:
    key = f"{name}_widget"
    st.session_state[key] = current
    st.checkbox(label, key=key, on_change=_taker(name, key, value), help=told)


def _taker(name: str, key: str, value: str) -> Callable[[], None]:
    return lambda: state.choose(**{name: value if st.session_state[key] else ""})
