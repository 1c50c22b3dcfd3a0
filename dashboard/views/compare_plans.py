"""Compare: two to four strategies in linked panels, and all of them in a table and a chart."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import arena_seconds
from memplan_dashboard.plan_view import plan_view
from memplan_dashboard.session import searches, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import NOTHING_TO_PLACE, errors_shown, plain, show_note
from memplan_dashboard.session.plan_facts import PlanFacts, with_best_bound
from memplan_dashboard.widgets import controls, planning_options
from memplan_dashboard.widgets.plan_panels import make_panel
from memplan_dashboard.widgets.planning_options import pick_symbols

from memplan_engine import Plan
from memplan_engine.analysis.claims import counted, left_out, verdict
from memplan_engine.plotting.axis_ticks import LEAST_SHARE
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.units import format_bytes

# Above this, all strategies are planned only when asked for.
MANY_BUFFERS = 20_000


def _panels(document: Document, several: list[PlanFacts], colour: str, capacity: int | None) -> None:
    colouring = COLOURINGS[colour](document.problem)
    plan_view(
        [make_panel(facts, colouring, capacity=capacity) for facts in several],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=document.index_of.get(state.get("selected")),
        key="compare_view",
        height=440,
        on_select=controls.select(document.problem),
    )


def _notes(plans: list[Plan]) -> None:
    """Which of them a time limit or a cancel has ended."""
    notes = [
        f"{plan.strategy}: not proved, cut short after {plan.seconds:.1f} s"
        for plan in plans
        if plan.cut_short and not plan.optimal
    ]
    if notes:
        st.caption(plain(" · ".join([*notes, "Inspect searches on"])))


def _table(several: list[PlanFacts]) -> None:
    plans = [facts.plan for facts in several]
    rows = pd.DataFrame(
        {
            "strategy": [plan.strategy for plan in plans],
            "arena": [format_bytes(plan.arena_bytes) for plan in plans],
            "bytes": [plan.arena_bytes for plan in plans],
            "over bound": [plan.gap for plan in plans],
            "with workspace": [format_bytes(plan.total_bytes) for plan in plans],
            "proved": [verdict(plan) for plan in plans],
            "ms": [1000 * plan.seconds for plan in plans],
            "saved": [facts.figures.saved for facts in several],
            "valid": [facts.report.valid for facts in several],
        }
    ).sort_values(["bytes", "ms"], kind="stable")
    if not plans[0].workspace_bytes:
        rows = rows.drop(columns="with workspace")
    finite = [plan.gap for plan in plans if plan.strategy != "naive"]
    st.dataframe(
        rows,
        hide_index=True,
        height=38 + 35 * len(rows),
        column_config={
            "strategy": st.column_config.TextColumn(width=230),
            "bytes": st.column_config.NumberColumn("arena, bytes", format="localized"),
            "over bound": st.column_config.ProgressColumn(
                format="percent", min_value=0.0, max_value=max([*finite, LEAST_SHARE])
            ),
            "saved": st.column_config.NumberColumn("saved", format="percent", help="Against no reuse."),
            "ms": st.column_config.NumberColumn(format="%.2f", help="What placing took, without reading."),
        },
    )
    st.caption(plain(f"Counted: {counted(plans[0].problem)}"))
    if unknown := left_out(plans[0].problem):
        st.caption(plain(f"Not planned: {unknown}"))
    _notes(plans)


def _plan_all(document: Document, names: Iterable[str]) -> list[PlanFacts]:
    """The plans that can be made; the error of each that cannot."""
    several = []
    for name in names:
        with errors_shown(name):
            several.append(searches.known_facts(document, name))
    return with_best_bound(several)


def _show_all(document: Document, chosen: list[PlanFacts]) -> None:
    st.subheader("All strategies")
    count = len(document.problem)
    if count > MANY_BUFFERS and not st.toggle(f"Plan {count:,} buffers with all strategies"):
        _table(chosen)
        return
    everything = _plan_all(document, controls.strategy_names(document))
    if not everything:
        return
    with st.container(key="halves_all"):
        left, right = st.columns([1.75, 1], gap="medium")
    with left:
        _table(everything)
    points = arena_seconds.data([facts.plan for facts in everything])
    right.plotly_chart(arena_seconds.figure(points), key="arena_seconds", config={"displayModeBar": False})


def _page() -> None:
    document = state.current_document()
    row = controls.row([2, 3.4, 1.2, 1.1, 1.1])
    with row[0]:
        controls.pick_document()
    with row[1]:
        names = controls.pick_strategies(document)
    with row[2]:
        colour = controls.pick_colouring(document)
    with row[3]:
        capacity = controls.pick_capacity()
    with row[4]:
        planning_options.pick_preparation(document)
    show_note(controls.wrong_strategies())
    pick_symbols(document)
    if not len(document.problem):
        st.info(NOTHING_TO_PLACE)
        return
    if len(names) < 2:
        st.info("Pick two to four strategies to put them side by side.")
    chosen = _plan_all(document, names)
    if chosen:
        _panels(document, chosen, colour, capacity)
    _show_all(document, chosen)


_page()
