"""The tab of a recording: what was live, what the allocator held, and where it ran out."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.charts import reserved_over_time
from memplan_dashboard.charts.reserved_over_time import Curve
from memplan_dashboard.session import documents, open_recordings
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.markdown_text import plain

from memplan_engine import MemplanError
from memplan_engine.recordings.cost import OverTime, memory_over_time
from memplan_engine.units import format_bytes, format_percent

STRIP_POINTS = 8192


def is_recorded(document: Document) -> bool:
    """Whether `document` is a recording, so that there is something to show."""
    try:
        return document.plan is not None and open_recordings.is_recording(documents.path_of(document.key))
    except MemplanError:
        return False


def reserved_curve(document: Document) -> Curve | None:
    """What the allocator held, for the strip below the chart; None where `document` does not say it."""
    if not is_recorded(document):
        return None
    try:
        over = _over_time(document.key, document.options.part, documents.version_of(document.key))
    except MemplanError:
        # The tab says why.
        return None
    return _strip_curve(over)[1] if over.knows_reserved else None


# By identity: the entry holds what it was made of, so that its id cannot become another's.
@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={OverTime: id})
def _strip_curve(over: OverTime) -> tuple[OverTime, Curve]:
    return over, reserved_over_time.data(over, STRIP_POINTS)


def show_reserved(document: Document) -> None:
    """The curve of both, with what fragmentation cost below it."""
    key, part = document.key, document.options.part
    try:
        over = _over_time(key, part, documents.version_of(key))
    except MemplanError as error:
        st.error(plain(error), icon=":material/error:")
        return
    if not over.knows_reserved:
        st.info("This file does not say what was reserved of the device, only what was in use.")
        return
    curve = reserved_over_time.data(over)
    st.plotly_chart(
        reserved_over_time.figure(curve), key="reserved_over_time", config={"displayModeBar": False}
    )
    st.caption(plain(summary(over)))


def summary(over: OverTime) -> str:
    """Both peaks, what lies between them, and how often memory ran out."""
    live, reserved = int(over.live.max()), int(over.reserved.max())
    share = format_percent((reserved - live) / reserved) if reserved else "none"
    told = (
        f"peak reserved {format_bytes(reserved)} at step {int(over.reserved.argmax()):,}, "
        f"peak live {format_bytes(live)} at step {int(over.live.argmax()):,}; "
        f"fragmentation {format_bytes(reserved - live)}, {share}"
    )
    failed = len(over.failures)
    return f"{told}; out of memory {failed:,} × (dotted)" if failed else told


@st.cache_resource(max_entries=8, show_spinner="Reading the recording …")
def _over_time(key: str, part: str, version: tuple[int, int]) -> OverTime:
    return memory_over_time(open_recordings.read_recording(documents.path_of(key), version, part))
