"""The widgets that change what is planned: streams, reuse, unread values, the part of a recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st
from memplan_dashboard.session import documents, open_recordings
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.url import MOST_STREAMS
from memplan_dashboard.widgets.controls import chooses

from memplan_engine import MemplanError, Unread
from memplan_engine.preparation import Preparation

INPUTS = "Give them a place in the arena; without it they belong to the caller."


def pick_preparation(document: Document) -> None:
    """A popover with all that can be asked of a graph, or which part of a recording is shown; nothing for
    other lists of buffers and finished plans."""
    is_graph = can_prepare(document)
    if not is_graph and len(_parts(document.key)) < 2:
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
    st.number_input(
        "Streams",
        min_value=1,
        max_value=MOST_STREAMS,
        step=1,
        value=None,
        placeholder="one op after another",
        help="Ops run as soon as they can, at most this many at one step (AITemplate's simple multi-stream).",
        **chooses(f"{side}streams", how.streams),
    )
    for label, name, current, value, told in (
        ("Write in place", "in_place", how.in_place, "1", "Elementwise ops, into an input that dies."),
        ("Concatenate without copies", "concat", how.concat, "1", "Inputs made inside the output."),
        ("Plan graph inputs", "inputs", how.plan_inputs, "1", INPUTS),
        (
            "Hold values that nobody reads",
            "unread",
            how.unread is Unread.HELD,
            str(Unread.HELD),
            "To the last step, as fx.Interpreter does; a planned arena frees them at once.",
        ),
        ("Round sizes up", "round", how.round_sizes, "1", "To the alignment, as AITemplate does."),
    ):
        st.checkbox(label, help=told, **chooses(f"{side}{name}", current, text=_if_on(value)))


def _if_on(value: str) -> Callable[[bool], str]:
    return lambda on: value if on else ""


def keep_part(document: Document, side: str = "") -> None:
    """Which part of the recording is shown; another one drops the selection and the changes."""
    current = document.options.part
    widget = chooses(f"{side}part", current, selected="", changed="", what_if="")
    _pick_part(document.key, current, **widget)


def pick_part(key: str) -> str:
    """The part of the recording behind `key`, as text, of which nothing is kept; "" where there is nothing to
    choose, or no recording."""
    return _pick_part(key, "", key=f"part_{key}")


def _pick_part(document: str, current: str, **widget: Any) -> str:
    """The parts, and the `current` one, which may be one that the list does not have, as the stream of a
    pool."""
    parts = _parts(document)
    if len(parts) < 2:
        return ""
    chosen = st.selectbox(
        "Part of the recording",
        list(dict.fromkeys(("", *parts, current))),
        format_func=lambda part: parts.get(part, part) or "the device with the most bytes, all streams",
        help="Devices share no memory, streams only what was freed, and a private pool, as of a CUDA graph, "
        "nothing with the common one.",
        **widget,
    )
    return chosen or ""


def _parts(key: str) -> dict[str, str]:
    """A file that cannot be read is explained by whoever opens it."""
    try:
        return _known_parts(key, documents.version_of(key))
    except MemplanError:
        return {}


@st.cache_data(max_entries=16, show_spinner="Reading the recording …")
def _known_parts(key: str, version: tuple[int, int]) -> dict[str, str]:
    path = documents.path_of(key)
    return open_recordings.parts(path, version) if open_recordings.is_recording(path) else {}
