"""The selected buffer on both sides."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.views.diff.diff_columns import Comparison

from memplan_engine import find_provenance
from memplan_engine.reporters.diff_words import change
from memplan_engine.units import format_bytes


def show_pair(found: Comparison, number: int) -> None:
    """Size, place, lifetime and source of a buffer in base and in head, side by side."""
    rows = found.rows_of(number)
    with st.container(border=True, key="details"):
        st.markdown("**Selected buffer**")
        sizes = [int(p.size[row]) for p, row in zip(found.problems, rows, strict=True) if row is not None]
        if len(set(sizes)) == 2:
            st.caption(plain(f"{change(sizes[0], sizes[1])} in size"))
        for column, facts, side, row in zip(
            st.columns(2), (found.base, found.head), ("base", "head"), rows, strict=True
        ):
            with column:
                _show_side(facts, side, row)


def _show_side(facts: Facts, side: str, row: int | None) -> None:
    if row is None:
        st.text(f"{side}: not there")
        return
    problem = facts.plan.problem
    st.text(f"{side}: {problem.names[row]}")
    known, buffer = find_provenance(problem)[row], problem[row]
    lines = (
        ("size", f"{format_bytes(buffer.size)} ({buffer.size:,} B)"),
        ("offset", f"{int(facts.plan.offsets[row]):,} B"),
        ("lifetime", f"steps {buffer.start:,} to {buffer.end - 1:,}, {buffer.end - buffer.start:,} in all"),
        ("tensor", f"{known.dtype} {list(known.shape)}" if known.dtype else ""),
        ("last reader", known.readers[-1] if known.readers else ""),
        ("module", known.module),
        ("source", str(known.source or "")),
    )
    for label, value in lines:
        if value:
            left, right = st.columns([1, 3.5], vertical_alignment="top")
            left.caption(label)
            right.text(value)
    if known.source and known.source.code:
        st.code(known.source.code, language="python")
