"""The tables under the chart: the peak, and all buffers. A row selected is a buffer selected."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard import state
from dashboard.figures import peak_bars
from memplan_engine import Peak, Plan, find_peak, provenance
from memplan_engine.units import format_bytes, format_percent

MOST_ROWS = 20_000


def show_tables(plan: Plan, selected: int | None) -> None:
    """The peak's contributors as bars and a table, and the table of all buffers."""
    peak = find_peak(plan.problem)
    at_peak, every = st.tabs(["What the peak is made of", "All buffers"])
    with at_peak:
        at = f", {peak.ops[0].name}" if peak.ops else ""
        st.caption(f"{format_bytes(peak.nbytes)} live at step {peak.step:,}{at}")
        left, right = st.columns([1, 2], gap="medium")
        bars = peak_bars.data(peak)
        left.plotly_chart(peak_bars.figure(bars, selected), key="peak_bars", config={"displayModeBar": False})
        with right:
            _selectable(_peak_rows(peak), [part.buffer for part in peak.contributors], selected, "peak", plan)
    with every:
        rows = _rows_of_all(plan)
        _selectable(rows, rows.index.tolist(), selected, "all", plan)


def _selectable(rows: pd.DataFrame, buffers: list[int], selected: int | None, name: str, plan: Plan) -> None:
    """A table whose selected row is the selected buffer, whichever of them is clicked."""
    place = buffers.index(selected) if selected in buffers else None
    # A table keeps what was clicked in it: a new key makes it take the selection from elsewhere.
    key = f"table_{name}_{selected}"
    st.dataframe(
        rows,
        key=key,
        hide_index=True,
        height=min(460, 38 + 35 * max(1, len(rows))),
        on_select=lambda: _clicked(key, buffers, plan),
        selection_mode="single-row",
        selection_default=None if place is None else {"selection": {"rows": [place]}},
        column_config={
            "bytes": st.column_config.NumberColumn(format="localized"),
            "share": st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1),
        },
    )


def _clicked(key: str, buffers: list[int], plan: Plan) -> None:
    rows = st.session_state[key].selection.rows
    state.choose(selected=plan.problem.names[buffers[rows[0]]] if rows else "")


def _peak_rows(peak: Peak) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "buffer": [part.name for part in peak.contributors],
            "size": [format_bytes(part.nbytes) for part in peak.contributors],
            "bytes": [part.nbytes for part in peak.contributors],
            "share": [part.nbytes / peak.nbytes for part in peak.contributors],
            "source": [str(part.provenance.source or "") for part in peak.contributors],
            "kind": [part.provenance.kind for part in peak.contributors],
            "module": [part.provenance.module for part in peak.contributors],
        }
    ).head(MOST_ROWS)


def _rows_of_all(plan: Plan) -> pd.DataFrame:
    problem = plan.problem
    known = provenance(problem)
    rows = pd.DataFrame(
        {
            "buffer": problem.names,
            "bytes": problem.size,
            "offset": plan.offsets,
            "start": problem.start,
            "end": problem.end,
            "kind": [each.kind for each in known],
            "module": [each.module for each in known],
        }
    ).sort_values("bytes", ascending=False, kind="stable")
    if len(rows) > MOST_ROWS:
        share = format_percent(MOST_ROWS / len(rows))
        st.caption(f"The largest {MOST_ROWS:,} of {len(rows):,} buffers ({share})")
    return rows.head(MOST_ROWS)
