"""Compare: two to four strategies in linked panels, and all of them in a table and a chart."""

from __future__ import annotations

from collections.abc import Container, Iterable

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import arena_seconds
from memplan_dashboard.plan_view import plan_view
from memplan_dashboard.session import searches, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import NOTHING_TO_PLACE, errors_shown, plain, show_note
from memplan_dashboard.session.plan_facts import PlanFacts, colouring_of, with_best_bound
from memplan_dashboard.widgets import controls, planning_options
from memplan_dashboard.widgets.plan_panels import make_panel
from memplan_dashboard.widgets.planning_options import pick_symbols

from memplan_engine import Plan
from memplan_engine.analysis.claims import counted, left_out
from memplan_engine.plotting.axis_ticks import LEAST_SHARE
from memplan_engine.reporters.compare_words import comparison_words
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.units import format_bytes

# Above this, all strategies are planned only when asked for.
MANY_BUFFERS = 20_000
NAIVE = "naive"


def _panels(document: Document, several: list[PlanFacts], colour: str, capacity: int | None) -> None:
    colouring = colouring_of(document, colour)
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
        f"{plan.strategy}: optimality not proved, stopped after {plan.seconds:.1f} s"
        for plan in plans
        if plan.cut_short and not plan.optimal
    ]
    if notes:
        st.caption(plain(" · ".join([*notes, "Inspect searches on"])))


def _say(plans: list[Plan], said: Container[str] = ()) -> list[str]:
    """Who wins, by how much, and what is the same for all, but for what was `said` before; gives what is."""
    verdict, *told = map(sentence_case, comparison_words(plans))
    st.markdown(f"#### {plain(verdict)}")
    if more := [sentence for sentence in told if sentence not in said]:
        st.caption(plain(" ".join(more)))
    return told


def _table(several: list[PlanFacts]) -> None:
    """A row a plan, with those columns alone in which they differ."""
    plans = [facts.plan for facts in several]
    rows = pd.DataFrame(
        {
            "strategy": [plan.strategy for plan in plans],
            "arena": [format_bytes(plan.arena_bytes) for plan in plans],
            "bytes": [plan.arena_bytes for plan in plans],
            "over bound": [plan.gap for plan in plans],
            "ms": [1000 * plan.seconds if plan.seconds else None for plan in plans],
            "valid": [facts.report.valid for facts in several],
        }
    ).sort_values(["bytes", "ms"], kind="stable")
    same = [name for name in rows.columns[1:] if rows[name].nunique() == 1]
    # A plan that is not valid has to be seen, even if none is.
    rows = rows.drop(columns=[name for name in same if name != "valid" or rows["valid"].all()])
    gaps = [plan.gap for plan in plans]
    st.dataframe(
        rows,
        hide_index=True,
        height=38 + 35 * len(rows),
        column_config={
            "strategy": st.column_config.TextColumn(width=200),
            "arena": st.column_config.TextColumn(width=80),
            "bytes": st.column_config.NumberColumn("arena, bytes", format="localized", width=105),
            "over bound": st.column_config.ProgressColumn(
                format="percent",
                # As long as the largest: no bar ends before its value.
                min_value=0.0,
                max_value=max([*gaps, LEAST_SHARE]),
                width=170,
                help="Arena over the lower bound; 0 % is provably the smallest.",
            ),
            "ms": st.column_config.NumberColumn(
                format="%.2f", width=75, help="Planning time, without reading the file."
            ),
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


def _show_all(document: Document, chosen: list[PlanFacts], said: Container[str]) -> None:
    st.subheader("All strategies")
    count = len(document.problem)
    if count > MANY_BUFFERS and not st.toggle(f"Plan {count:,} buffers with all strategies"):
        _table(chosen)
        return
    names = controls.strategy_names(document)
    # No reuse is no competitor: the sentences have it, and beside it all other bars would be slivers.
    shown = [name for name in names if name != NAIVE or NAIVE in {facts.plan.strategy for facts in chosen}]
    everything = _plan_all(document, shown)
    if not everything:
        return
    _say([facts.plan for facts in everything], said)
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
        st.info("Pick two to four strategies to compare side by side.")
    chosen = _plan_all(document, names)
    said: list[str] = []
    if chosen:
        said = _say([facts.plan for facts in chosen])
        _panels(document, chosen, colour, capacity)
    _show_all(document, chosen, said)


_page()
