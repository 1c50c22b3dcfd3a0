"""Which device and stream of a recording is opened."""

from __future__ import annotations

import streamlit as st

from dashboard import documents, recordings
from memplan_engine import MemplanError


def pick_part(key: str) -> str:
    """The part of the recording behind `key`, as text; "" where there is nothing to choose, or no recording.

    A file that cannot be read is explained by whoever opens it.
    """
    try:
        path = documents.path_of(key)
        if not recordings.is_recording(path):
            return ""
        with st.spinner("Reading the recording …"):
            found = recordings.parts(path, documents.version_of(key))
    except MemplanError:
        return ""
    if len(found) < 2:
        return ""
    chosen = st.selectbox(
        "Part of the recording",
        ["", *found],
        format_func=lambda part: found.get(part, "the device with the most bytes, all streams"),
        key=f"part_{key}",
        help="Devices share no memory, streams only what was freed.",
    )
    return chosen or ""
