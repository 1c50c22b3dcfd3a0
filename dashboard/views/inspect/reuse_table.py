"""What writing in place and concatenating without copies save, op by op."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.session import graph_facts
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts

from memplan_engine import MemplanError
from memplan_engine.reporters.graph_tables import tenant_and_home
from memplan_engine.rewrites.reuse import Saving, kept_table, rewrites_table
from memplan_engine.units import format_bytes

MOST_ROWS = 5_000


def show_reuse(facts: Facts) -> None:
    """The four ways to run the graph, what is rewritten, and why the rest is not."""
    try:
        rows = graph_facts.savings_of(facts.document)
    except MemplanError as error:
        st.error(plain(error), icon=":material/error:")
        return
    st.caption(
        "Both are off by default: switch them on in Options. A checker that shares no code with the "
        "transforms proves each before it is planned."
    )
    st.dataframe(_ways(rows), hide_index=True)
    both = rows[-1].reused
    with st.container(key="halves_reuse"):
        left, right = st.columns(2, gap="medium")
    with left:
        rewritten = [
            row | dict(zip(("tenant", "home"), tenant_and_home(row), strict=True))
            for row in rewrites_table(both)
        ]
        _table(f"{len(both.rewrites):,} rewritten with both", rewritten, _REWRITTEN)
    with right:
        _table(f"{len(both.kept):,} left as they were", kept_table(both), _KEPT)


_REWRITTEN = {"op": "op", "way": "way", "tenant": "tensor", "home": "lives in", "bytes": "size"}
_KEPT = {"op": "op", "tensor": "tensor", "reason": "reason", "other": "because of", "bytes": "size"}


def _ways(rows: tuple[Saving, ...]) -> pd.DataFrame:
    first = rows[0].arena
    return pd.DataFrame(
        {
            "way": [row.name for row in rows],
            "arena": [format_bytes(row.arena) for row in rows],
            "saved": [format_bytes(first - row.arena) for row in rows],
            "lower bound": [format_bytes(row.bound) for row in rows],
            "peak": [format_bytes(row.peak) for row in rows],
            "ops rewritten": [row.ops for row in rows],
        }
    )


def _table(title: str, rows: list[dict[str, object]], columns: dict[str, str]) -> None:
    st.caption(title if len(rows) <= MOST_ROWS else f"{title}; the first {MOST_ROWS:,}")
    frame = pd.DataFrame(rows[:MOST_ROWS], columns=list(columns)).rename(columns=columns)
    frame["size"] = [format_bytes(int(size)) for size in frame["size"]]
    st.dataframe(frame, hide_index=True, height=min(420, 38 + 35 * max(1, len(frame))))
