"""The shared objects of a plan: whole pieces of memory that buffers use one after another."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.session.markdown_text import plain

from memplan_engine import Plan
from memplan_engine.reporters.shared_object_tables import object_summary, object_table
from memplan_engine.units import format_bytes, format_percent

MOST_ROWS = 5_000


def show_objects(plan: Plan) -> None:
    """How many objects, how large, how close to the bound of their family, and who uses each."""
    found, rows = object_summary(plan), object_table(plan)[:MOST_ROWS]
    over = "which they meet" if found.optimal else f"{format_percent(found.gap)} over"
    st.caption(
        plain(
            f"{found.objects:,} objects, {format_bytes(found.objects_bytes)} together; shared objects need "
            f"at least {format_bytes(found.objects_bound)} (the sum of positional maxima), {over}. "
            f"Offsets need at least {format_bytes(found.lower_bound)}."
        )
    )
    steps = max(plan.problem.steps, 1)
    st.dataframe(
        pd.DataFrame(
            {
                "object": [row.object for row in rows],
                "size": [format_bytes(row.nbytes) for row in rows],
                "bytes": [row.nbytes for row in rows],
                "offset": [row.offset for row in rows],
                "busy": [row.busy_steps / steps for row in rows],
                "buffers": [len(row.buffers) for row in rows],
                "in order of time": [", ".join(row.buffers) for row in rows],
            }
        ),
        hide_index=True,
        height=min(460, 38 + 35 * max(1, len(rows))),
        column_config={
            "bytes": st.column_config.NumberColumn(format="localized"),
            "offset": st.column_config.NumberColumn(format="localized"),
            "busy": st.column_config.ProgressColumn(
                format="percent",
                min_value=0,
                max_value=1,
                help="Share of the steps.",
            ),
        },
    )
