"""Inspect: one plan, what its peak is made of, and everything about the buffer that is selected."""

from __future__ import annotations

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from dashboard import controls, preparing, solving, state
from dashboard.colours import COLOURINGS
from dashboard.documents import Document
from dashboard.facts import Facts
from dashboard.panels import make_panel
from dashboard.plan_view import plan_view
from dashboard.search import misses
from dashboard.sections.buffer_details import show_details
from dashboard.sections.figures_row import show_figures
from dashboard.sections.search_panel import settle, show_search
from dashboard.sections.tables import show_tables
from dashboard.solving import Search
from dashboard.symbols import pick_symbols
from dashboard.words import NOTHING_TO_PLACE, plain
from memplan_engine import MemplanError

LAST = "last_strategy"


def _facts(document: Document, strategy: str) -> tuple[Facts, Search | None] | None:
    """The plan, and the search that goes on for a better one; where the strategy fails, its error above the
    plan that was shown before."""
    try:
        search = solving.begin(document, strategy)
        if search is not None:
            settle(search)
        facts = solving.known_facts(document, strategy)
    except MemplanError as error:
        st.error(plain(error), icon=":material/error:")
        key, before = st.session_state.get(LAST, ("", ""))
        if key != document.key or before == strategy:
            return None
        try:
            return solving.known_facts(document, before), None
        except MemplanError:
            return None
    st.session_state[LAST] = (document.key, strategy)
    return facts, search


def _dimmed(document: Document, pattern: str) -> NDArray[np.bool_] | None:
    try:
        dimmed = misses(document.problem, pattern)
    except MemplanError as error:
        st.error(plain(error), icon=":material/error:")
        return None
    if dimmed is not None:
        st.caption(f"{int((~dimmed).sum()):,} of {len(dimmed):,} buffers found")
    return dimmed


def _chart(facts: Facts, colour: str, pattern: str, budget: int | None) -> int | None:
    """Draw the plan; gives the selected buffer."""
    document = facts.document
    colouring = COLOURINGS[colour](document.problem)

    def select(index: int | None) -> None:
        state.choose(selected="" if index is None else document.problem.names[index])

    event = plan_view(
        [make_panel(facts, colouring, _dimmed(document, pattern), budget)],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=document.index_of.get(state.get("selected")),
        key="inspect_view",
        on_select=select,
    )
    return event.selected


def _page() -> None:
    document = state.current_document()
    row = controls.row([2.2, 1.7, 1.2, 1.5, 1.1, 1.1])
    with row[0]:
        controls.pick_document()
    with row[1]:
        strategy = controls.pick_strategy(document)
    with row[2]:
        colour = controls.pick_colouring(document)
    with row[3]:
        pattern = controls.pick_search()
    with row[4]:
        budget = controls.pick_budget()
    with row[5]:
        preparing.pick_preparation(document)
    pick_symbols(document)
    found = _facts(document, strategy)
    if found is None:
        return
    facts, search = found
    show_figures(facts, budget)
    if search is not None:
        show_search(search)
    if not len(document.problem):
        st.info(NOTHING_TO_PLACE)
        return
    selected = _chart(facts, colour, pattern, budget)
    if selected is not None:
        show_details(facts, selected)
    show_tables(facts, selected)


_page()
