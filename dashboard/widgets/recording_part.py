"""Which device, stream and memory pool of a recording is opened."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from memplan_dashboard.session import documents, open_recordings

from memplan_engine import MemplanError

HELP = (
    "Devices share no memory, streams only what was freed, and a private pool, as of a CUDA graph, nothing "
    "with the common one."
)


def pick_part(
    key: str, current: str = "", on_pick: Callable[[str], None] | None = None, widget: str = ""
) -> str:
    """The part of the recording behind `key`, as text; "" where there is nothing to choose, or no recording.

    With `on_pick`, the box shows `current`, which may be one that the list does not have, as the stream of a
    pool.
    """
    found = _parts(key)
    if len(found) < 2:
        return ""
    widget = widget or f"part_{key}"
    if on_pick is not None:
        st.session_state[widget] = current
    chosen = st.selectbox(
        "Part of the recording",
        list(dict.fromkeys(("", *found, current))),
        format_func=lambda part: found.get(part, part) or "the device with the most bytes, all streams",
        key=widget,
        on_change=(lambda: on_pick(st.session_state[widget] or "")) if on_pick else None,
        help=HELP,
    )
    return chosen or ""


def has_parts(key: str) -> bool:
    """Whether there is anything to choose."""
    return len(_parts(key)) > 1


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
