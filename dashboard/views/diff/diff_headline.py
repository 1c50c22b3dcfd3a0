"""What became of the arena, and why: figures that add up, the waterfall, the sentences of the diff."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.charts import demand_waterfall
from memplan_dashboard.session.messages import plain
from memplan_dashboard.views.diff.diff_columns import Comparison
from memplan_dashboard.widgets.controls import QUIET

from memplan_engine.diffing.regression import Diff
from memplan_engine.reporters.diff_words import (
    change,
    counted_sentences,
    counts_sentence,
    figures,
    matched_sentence,
    moment_sentence,
    notes,
    peak_sentence,
    signed,
    warning,
)
from memplan_engine.units import format_bytes, format_percent

DEMAND = "The most bytes alive at a step: no planner needs less. When this grows, it is the model."
PACKING = "What the arena takes beyond that. When this grows, it is the planner's doing."


def show_headline(comparison: Comparison) -> None:
    """Δarena = Δdemand + Δpacking loss, what Δdemand is made of, and how much of the two could be matched."""
    diff = comparison.diff
    if told := warning(diff):
        st.warning(plain(_sentence(told)), icon=":material/warning:")
    _figures(diff, comparison.buffers)
    if diff.same:
        st.success("Nothing changed: every buffer has its match, and the arena is the same.")
        return
    with st.container(key="halves_causes"):
        left, right = st.columns([1.35, 1], gap="medium")
    steps = demand_waterfall.data(diff)
    left.plotly_chart(
        demand_waterfall.figure(steps), key="demand_waterfall", config={"displayModeBar": False}
    )
    with right:
        for told in (peak_sentence(diff), moment_sentence(diff), matched_sentence(diff)):
            st.markdown(plain(_sentence(told)))
        for told in (*notes(diff), *_beside(diff)):
            st.caption(plain(_sentence(told)))


def _beside(diff: Diff) -> list[str]:
    """What the ops hold beside the arenas, and what all these figures count."""
    told = [
        f"{what} {format_bytes(before)} → {format_bytes(after)}, {change(before, after)}"
        for what, before, after in figures(diff)[3:]
    ]
    return [*told, *counted_sentences(diff)]


def _figures(diff: Diff, buffers: int) -> None:
    arena, demand, packing = figures(diff)[:3]
    row = st.container(key="figures_diff").columns([1.7, 1.1, 1.1, 1, 1], gap="small")
    row[0].metric(
        "Arena, base → head",
        f"{format_bytes(arena[1])} → {format_bytes(arena[2])}",
        change(arena[1], arena[2]),
        delta_color="inverse" if diff.arena_delta else "off",
        delta_arrow="auto" if diff.arena_delta else "off",
    )
    for column, label, (_, before, after), told in (
        (row[1], "= Δ demand", demand, DEMAND),
        (row[2], "+ Δ packing loss", packing, PACKING),
    ):
        column.metric(
            label,
            signed(after - before),
            f"{format_bytes(before)} → {format_bytes(after)}",
            help=told,
            **QUIET,
        )
    row[3].metric(
        "Buffers changed",
        f"{diff.changed:,}",
        f"of {buffers:,}",
        help=_capital(counts_sentence(diff)),
        **QUIET,
    )
    row[4].metric(
        "Buffers matched",
        format_percent(diff.share),
        f"{format_percent(diff.bytes_share)} of the bytes",
        help="The share that has a counterpart: by name, module, op kind, shape and order.",
        **QUIET,
    )


def _capital(told: str) -> str:
    return f"{told[:1].upper()}{told[1:]}"


def _sentence(told: str) -> str:
    return f"{_capital(told)}."
