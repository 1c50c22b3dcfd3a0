"""The tabs about memory: all of it in a plan, shared objects, and what a recording's allocator held."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import layout_bar, phase_areas, reserved_over_time
from memplan_dashboard.charts.reserved_over_time import Curve
from memplan_dashboard.session import documents
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.widgets.tables import MOST_ROWS, named, show_table, whole

from memplan_engine import MemplanError, Plan, Problem
from memplan_engine.analysis.buffer_names import layout_names
from memplan_engine.analysis.device_memory import CATEGORIES as DEVICE_CATEGORIES
from memplan_engine.analysis.device_memory import DeviceMemory, device_memory
from memplan_engine.analysis.layout import Layout, make_layout
from memplan_engine.analysis.positional import object_summary, object_table
from memplan_engine.plotting.colouring import CATEGORIES
from memplan_engine.recordings.allocator_recording import partial_words
from memplan_engine.recordings.cost import OverTime, memory_over_time
from memplan_engine.units import format_bytes, format_percent

STRIP_POINTS = 8192


def show_layout(facts: PlanFacts) -> None:
    """Constants, activations and workspaces as one picture and one table."""
    memory = device_memory(facts.plan.problem)
    if memory is not None:
        st.caption(
            plain(
                f"At most {format_bytes(memory.peak_bytes)} on the device at one step, inputs from the "
                "caller included. Not counted: whatever else an eager run or its allocator holds."
            )
        )
        chart = phase_areas.figure(device_areas(memory))
        st.plotly_chart(chart, key="device_memory", config={"displayModeBar": False})
    layout = make_layout(facts.plan)
    parts = " · ".join(f"{region.kind.words} {format_bytes(region.nbytes)}" for region in layout.regions)
    st.caption(plain(f"{format_bytes(layout.nbytes)} total: {parts}"))
    st.plotly_chart(
        layout_bar.figure(layout_bar.data(layout)), key="layout_bar", config={"displayModeBar": False}
    )
    rows = _layout_rows(layout, facts.plan.problem)
    if len(rows) > MOST_ROWS:
        st.caption(f"The largest {MOST_ROWS:,} of {len(rows):,} entries.")
        rows = rows.nlargest(MOST_ROWS, "bytes").sort_values(["address", "entry"])
    show_table(rows, whole("offset", "address", "bytes"), key="layout_table")


def device_areas(memory: DeviceMemory) -> phase_areas.Areas:
    """The stack by category, weights lowest."""
    colours = {name: light for name, (light, _) in zip(DEVICE_CATEGORIES, CATEGORIES, strict=False)}
    return phase_areas.Areas(memory.start, memory.end, memory.live, colours)


def _layout_rows(layout: Layout, problem: Problem) -> pd.DataFrame:
    entries = [(region, entry) for region in layout.regions for entry in region.entries]
    return pd.DataFrame(
        {
            "region": [region.kind.words for region, _ in entries],
            **named("entry", [entry.name for _, entry in entries], layout_names(problem)),
            "size": [format_bytes(entry.nbytes) for _, entry in entries],
            "bytes": [entry.nbytes for _, entry in entries],
            "offset": [entry.offset for _, entry in entries],
            "address": [region.start + entry.offset for region, entry in entries],
        }
    )


def show_objects(plan: Plan) -> None:
    """How many objects, how large, how close to the bound of their family, and who uses each."""
    summary, rows = object_summary(plan), object_table(plan)[:MOST_ROWS]
    over = "which they meet" if summary.optimal else f"{format_percent(summary.gap)} over"
    st.caption(
        plain(
            f"{summary.objects:,} objects, {format_bytes(summary.objects_bytes)} together; shared objects "
            f"need at least {format_bytes(summary.objects_bound)} (the sum of positional maxima), {over}. "
            f"Offsets need at least {format_bytes(summary.lower_bound)}."
        )
    )
    steps = max(plan.problem.steps, 1)
    table = pd.DataFrame(
        {
            "object": [row.object for row in rows],
            "size": [format_bytes(row.nbytes) for row in rows],
            "bytes": [row.nbytes for row in rows],
            "offset": [row.offset for row in rows],
            "busy": [row.busy_steps / steps for row in rows],
            "buffers": [len(row.buffers) for row in rows],
            "in time order": [", ".join(row.buffers) for row in rows],
        }
    )
    busy = st.column_config.ProgressColumn(
        format="percent", min_value=0, max_value=1, help="Share of the steps at which it is in use."
    )
    show_table(table, {**whole("bytes", "offset"), "busy": busy})


def reserved_curve(document: Document) -> Curve | None:
    """What the allocator held, for the strip below the chart; None where `document` does not say it."""
    if not documents.is_recorded(document):
        return None
    try:
        over = over_time_of(document)
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
    with errors_shown():
        over = over_time_of(document)
        if not over.knows_reserved:
            st.info("This file records only what was in use, not what was reserved on the device.")
            return
        chart = reserved_over_time.figure(reserved_over_time.data(over))
        st.plotly_chart(chart, key="reserved_over_time", config={"displayModeBar": False})
        st.caption(plain(summary(over)))


def summary(over: OverTime) -> str:
    """Both peaks, what lies between them, and how often memory ran out. Of a part of a run both are the
    least, and what lies between them says nothing."""
    live, reserved = int(over.live.max()), int(over.reserved.max())
    share = format_percent((reserved - live) / reserved) if reserved else "none"
    kind = "at least" if over.partial else "peak"
    told = (
        f"{kind} reserved {format_bytes(reserved)} at step {int(over.reserved.argmax()):,}, "
        f"{kind} live {format_bytes(live)} at step {int(over.live.argmax()):,}"
    )
    if over.partial:
        told += f"; a part of a run: {partial_words(over.partial)}"
    else:
        told += f"; fragmentation {format_bytes(reserved - live)}, {share}"
    failed = len(over.failures)
    return f"{told}; out of memory {failed:,} × (dotted)" if failed else told


def over_time_of(document: Document) -> OverTime:
    """What was live and reserved in a recording; raises MemplanError."""
    return _over_time(document.key, document.options.part, documents.version_of(document.key))


@st.cache_resource(max_entries=8, show_spinner="Reading the recording …")
def _over_time(key: str, part: str, version: tuple[int, int]) -> OverTime:
    return memory_over_time(documents.read_recording(documents.path_of(key), version, part))
