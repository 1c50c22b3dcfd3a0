"""Inspect: one plan, what its peak is made of, and everything about the buffer that is selected."""

from __future__ import annotations

import numpy as np
import streamlit as st
from memplan_dashboard.plan_view import plan_view
from memplan_dashboard.session import scenarios, searches, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.markdown_text import NOTHING_TO_PLACE, plain
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.scenarios import Changed
from memplan_dashboard.session.searches import Search
from memplan_dashboard.views.inspect.buffer_details import show_details
from memplan_dashboard.views.inspect.buffer_filter import misses
from memplan_dashboard.views.inspect.buffer_tables import show_tables
from memplan_dashboard.views.inspect.downloads import show_downloads
from memplan_dashboard.views.inspect.figures_row import show_figures
from memplan_dashboard.views.inspect.reserved import reserved_curve
from memplan_dashboard.views.inspect.what_if_bar import show_bar
from memplan_dashboard.views.inspect.what_if_tab import show_what_if
from memplan_dashboard.widgets import controls, planning_options
from memplan_dashboard.widgets.plan_panels import make_panel
from memplan_dashboard.widgets.search_panel import settle, show_search
from memplan_dashboard.widgets.symbol_sliders import pick_symbols
from numpy.typing import NDArray

from memplan_engine import MemplanError
from memplan_engine.plotting.colouring import COLOURINGS

LAST = "last_strategy"


def _facts(document: Document, strategy: str, capacity: int | None) -> tuple[Facts, Search | None] | None:
    """The plan, and the search that goes on for a better one; where the strategy fails, its error above the
    plan that was shown before."""
    try:
        search = searches.begin(document, strategy)
        if search is not None:
            searches.aim(search, capacity)
            settle(search)
        facts = searches.known_facts(document, strategy)
    except MemplanError as error:
        st.error(plain(error), icon=":material/error:")
        key, before = st.session_state.get(LAST, ("", ""))
        if key != document.key or before == strategy:
            return None
        try:
            return searches.known_facts(document, before), None
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


def _changed_facts(
    changed: Changed, strategy: str, capacity: int | None
) -> tuple[Changed, Facts | None, Facts, Search | None] | None:
    """What is shown: the changes, the plan without them (None where there are none, or no such plan), and the
    plan with them, above it what they come to; without them where it fails."""
    found = _facts(changed.document, scenarios.strategy_for(changed, strategy), capacity)
    if not (changed.scenario.edits or changed.scenario.undone):
        return (changed, None, *found) if found else None
    before = scenarios.original_facts(changed, strategy)
    show_bar(changed, before, found[0] if found else None)
    if found is None:
        changed = changed.unchanged()
        found = _facts(changed.document, strategy, capacity)
    return (changed, before, *found) if found else None


def _chart(
    facts: Facts,
    changed: Changed,
    colour: str,
    dimmed: NDArray[np.bool_] | None,
    capacity: int | None,
    before: Facts | None,
) -> int | None:
    """Draw the plan; gives the selected buffer."""
    document = facts.document
    colouring = COLOURINGS[colour](document.problem)
    if changed.is_changed:
        colouring = changed.colouring(colour, COLOURINGS[colour](changed.original.problem), colouring)

    def select(index: int | None) -> None:
        state.choose(selected="" if index is None else document.problem.names[index])

    event = plan_view(
        [
            make_panel(
                facts,
                colouring,
                dimmed,
                capacity,
                before.plan.arena_bytes if before and changed.is_changed else None,
                None if changed.is_changed else reserved_curve(document),
            )
        ],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=document.index_of.get(state.get("selected")),
        key="inspect_view",
        on_select=select,
        rows=changed.rows,
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
        capacity = controls.pick_capacity()
    with row[5]:
        planning_options.pick_preparation(document)
    controls.show_note(controls.wrong_strategy(document))
    pick_symbols(document)
    found = _changed_facts(scenarios.changed(document), strategy, capacity)
    if found is None:
        return
    changed, before, facts, search = found
    show_figures(facts, capacity)
    if search is not None:
        show_search(search)
    if not len(facts.plan.problem):
        st.info(NOTHING_TO_PLACE)
        return
    dimmed = _dimmed(facts.document, pattern)
    selected = _chart(facts, changed, colour, dimmed, capacity, before)
    show_downloads(facts, colour)
    if selected is not None:
        show_details(facts, selected)
    show_tables(facts, selected, lambda: show_what_if(changed, facts, selected, capacity), dimmed)


_page()
