"""Compare: two to four strategies in linked panels, and all of them in a table and a chart."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard import controls, state
from dashboard.colours import COLOURINGS
from dashboard.documents import Document
from dashboard.figures import arena_seconds
from dashboard.panels import make_panel
from dashboard.plan_view import plan_view
from memplan_engine import MemplanError, Plan, strategies, validate
from memplan_engine.tables import saved
from memplan_engine.units import format_bytes

# Above this, all strategies are planned only when asked for.
MANY_BUFFERS = 50_000


def _panels(document: Document, plans: list[Plan], colour: str, budget: int | None) -> None:
    colouring = COLOURINGS[colour](document.problem)
    names = document.problem.names
    selected = state.get("selected")
    event = plan_view(
        [make_panel(plan, colouring, budget=budget) for plan in plans],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=names.index(selected) if selected in set(names) else None,
        key="compare_view",
        height=440,
    )
    state.choose(selected="" if event.selected is None else names[event.selected])


def _table(plans: list[Plan]) -> None:
    rows = pd.DataFrame(
        {
            "strategy": [plan.strategy for plan in plans],
            "arena": [format_bytes(plan.arena_bytes) for plan in plans],
            "arena, bytes": [plan.arena_bytes for plan in plans],
            "over bound": [plan.gap for plan in plans],
            "saved against naive": [saved(plan) for plan in plans],
            "ms": [1000 * plan.seconds for plan in plans],
            "valid": [validate(plan).valid for plan in plans],
            "optimal": [plan.optimal for plan in plans],
        }
    ).sort_values(["arena, bytes", "ms"], kind="stable")
    finite = [plan.gap for plan in plans if plan.strategy != "naive"]
    st.dataframe(
        rows,
        hide_index=True,
        column_config={
            "arena, bytes": st.column_config.NumberColumn(format="localized"),
            "over bound": st.column_config.ProgressColumn(
                format="percent", min_value=0.0, max_value=max([*finite, 1e-9])
            ),
            "saved against naive": st.column_config.NumberColumn(format="percent"),
            "ms": st.column_config.NumberColumn(format="%.2f"),
        },
    )


def _all_plans(document: Document) -> list[Plan]:
    names = list(strategies())
    plans = []
    with st.spinner(f"Planning with {len(names)} strategies …"):
        for name in names:
            try:
                plans.append(state.plan_of(document, name))
            except MemplanError as error:
                st.warning(f"{name}: {error}", icon=":material/warning:")
    if document.plan is not None:
        plans.insert(0, document.plan)
    return plans


def _page() -> None:
    document = state.current_document()
    row = st.columns([2, 3.4, 1.2, 1.1], gap="small")
    with row[0]:
        controls.pick_document()
    with row[1]:
        chosen = controls.pick_strategies(document)
    with row[2]:
        colour = controls.pick_colouring()
    with row[3]:
        budget = controls.pick_budget()
    if not len(document.problem):
        st.info("There is nothing to place: every tensor is a constant, an input or empty.")
        return
    try:
        plans = [state.plan_of(document, name) for name in chosen]
    except MemplanError as error:
        st.error(str(error), icon=":material/error:")
        return
    _panels(document, plans, colour, budget)
    st.subheader("All strategies")
    if len(document.problem) > MANY_BUFFERS and not st.toggle(
        f"Plan {len(document.problem):,} buffers with all"
    ):
        _table(plans)
        return
    everything = _all_plans(document)
    left, right = st.columns([1.75, 1], gap="medium")
    with left:
        _table(everything)
    right.plotly_chart(arena_seconds.figure(arena_seconds.data(everything)), key="arena_seconds")


_page()
