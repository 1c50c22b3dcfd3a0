"""The whole memory of a plan: a bar of its regions, and what lies where in them."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import layout_bar
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts

from memplan_engine.analysis.layout import Layout, Region, make_layout
from memplan_engine.units import format_bytes

MOST_ENTRIES = 5_000


def show_layout(facts: Facts) -> None:
    """Constants, activations and workspaces as one picture and one table."""
    layout = make_layout(facts.plan)
    parts = " · ".join(f"{region.kind} {format_bytes(region.nbytes)}" for region in layout.regions)
    st.caption(plain(f"{format_bytes(layout.nbytes)} in all: {parts}"))
    st.plotly_chart(
        layout_bar.figure(layout_bar.data(layout)), key="layout_bar", config={"displayModeBar": False}
    )
    rows = _rows(layout)
    if len(rows) > MOST_ENTRIES:
        st.caption(f"The largest {MOST_ENTRIES:,} of {len(rows):,} entries.")
        rows = rows.nlargest(MOST_ENTRIES, "bytes").sort_values(["address", "entry"])
    st.dataframe(
        rows,
        key="layout_table",
        hide_index=True,
        height=min(460, 38 + 35 * max(1, len(rows))),
        column_config={
            name: st.column_config.NumberColumn(format="localized") for name in ("offset", "address", "bytes")
        },
    )


def _rows(layout: Layout) -> pd.DataFrame:
    return pd.concat([_of_region(region) for region in layout.regions] or [_of_region(None)])


def _of_region(region: Region | None) -> pd.DataFrame:
    entries = region.entries if region else ()
    start = region.start if region else 0
    return pd.DataFrame(
        {
            "region": [str(region.kind) if region else ""] * len(entries),
            "entry": [entry.name for entry in entries],
            "size": [format_bytes(entry.nbytes) for entry in entries],
            "bytes": [entry.nbytes for entry in entries],
            "offset": [entry.offset for entry in entries],
            "address": [start + entry.offset for entry in entries],
        }
    )
