"""Inspect: one plan, what its peak is made of, and everything about the buffer that is selected."""

from __future__ import annotations

import streamlit as st

from dashboard import controls, state
from dashboard.colours import COLOURINGS
from dashboard.documents import Document
from dashboard.panels import make_panel
from dashboard.plan_view import plan_view
from dashboard.search import misses
from dashboard.sections.buffer_details import show_details
from dashboard.sections.figures_row import show_figures
from dashboard.sections.tables import show_tables
from memplan_engine import MemplanError, Plan


def _selected(document: Document) -> int | None:
    name = state.get("selected")
    return document.problem.names.index(name) if name in set(document.problem.names) else None


def _chart(document: Document, plan: Plan, colour: str, pattern: str, budget: int | None) -> None:
    colouring = COLOURINGS[colour](document.problem)
    try:
        dimmed = misses(document.problem, pattern)
    except MemplanError as error:
        st.error(str(error), icon=":material/error:")
        dimmed = None
    if dimmed is not None:
        st.caption(f"{int((~dimmed).sum())} of {len(dimmed)} buffers found")
    event = plan_view(
        [make_panel(plan, colouring, dimmed, budget)],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=_selected(document),
        key="inspect_view",
    )
    state.choose(selected="" if event.selected is None else document.problem.names[event.selected])


def _page() -> None:
    document = state.current_document()
    row = st.columns([2.2, 1.6, 1.2, 1.8, 1.1], gap="small")
    with row[0]:
        controls.pick_document()
    with row[1]:
        strategy = controls.pick_strategy(document)
    with row[2]:
        colour = controls.pick_colouring()
    with row[3]:
        pattern = controls.pick_search()
    with row[4]:
        budget = controls.pick_budget()
    try:
        plan = state.plan_of(document, strategy)
    except MemplanError as error:
        st.error(str(error), icon=":material/error:")
        return
    show_figures(plan, budget)
    if not len(document.problem):
        st.info("There is nothing to place: every tensor is a constant, an input or empty.")
        return
    _chart(document, plan, colour, pattern, budget)
    selected = _selected(document)
    if selected is not None:
        show_details(document, plan, selected)
    show_tables(plan, selected)


_page()
