"""Inspect: one plan, what its peak is made of, and everything about the buffer that is selected."""

from __future__ import annotations

import re

import numpy as np
import streamlit as st
from memplan_dashboard.plan_view import plan_view
from memplan_dashboard.session import scenarios, searches, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import NOTHING_TO_PLACE, errors_shown, show_error, show_note
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.session.scenarios import ScenarioView
from memplan_dashboard.session.searches import Search
from memplan_dashboard.views.inspect.buffer_filter import misses
from memplan_dashboard.views.inspect.buffer_tables import show_tables
from memplan_dashboard.views.inspect.figures_row import show_figures
from memplan_dashboard.views.inspect.memory_tabs import reserved_curve
from memplan_dashboard.views.inspect.what_if_view import show_bar, show_what_if
from memplan_dashboard.widgets import controls, planning_options
from memplan_dashboard.widgets.buffer_details import show_buffer
from memplan_dashboard.widgets.plan_panels import make_panel
from memplan_dashboard.widgets.planning_options import pick_symbols
from memplan_dashboard.widgets.search_panel import settle, show_search
from numpy.typing import NDArray

from memplan_engine import FigureStyle, MemplanError, ReportNotes
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.plotting.png_figure import to_png
from memplan_engine.plotting.svg_figure import to_svg
from memplan_engine.reporters.html.report_html import to_html

LAST = "last_strategy"


def _facts(document: Document, strategy: str, capacity: int | None) -> tuple[PlanFacts, Search | None] | None:
    """The plan, and the search that goes on for a better one; where the strategy fails, its error above the
    plan that was shown before."""
    try:
        search = searches.begin(document, strategy)
        if search is not None:
            searches.aim(search, capacity)
            settle(search)
        facts = searches.known_facts(document, strategy)
    except MemplanError as error:
        show_error(error)
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
    with errors_shown():
        dimmed = misses(document.problem, pattern)
        if dimmed is not None:
            st.caption(f"{int((~dimmed).sum()):,} of {len(dimmed):,} buffers found")
        return dimmed
    return None


def _changed_facts(
    view: ScenarioView, strategy: str, capacity: int | None
) -> tuple[ScenarioView, PlanFacts | None, PlanFacts, Search | None] | None:
    """What is shown: the changes, the plan without them (None where there are none, or no such plan), and the
    plan with them, above it what they come to; without them where it fails."""
    planned = _facts(view.document, scenarios.strategy_for(view, strategy), capacity)
    if not (view.scenario.edits or view.scenario.undone):
        return (view, None, *planned) if planned else None
    before = scenarios.original_facts(view, strategy)
    show_bar(view, before, planned[0] if planned else None)
    if planned is None:
        view = view.unchanged()
        planned = _facts(view.document, strategy, capacity)
    return (view, before, *planned) if planned else None


def _chart(
    facts: PlanFacts,
    view: ScenarioView,
    colour: str,
    dimmed: NDArray[np.bool_] | None,
    capacity: int | None,
    before: PlanFacts | None,
) -> int | None:
    """Draw the plan; gives the selected buffer."""
    document = facts.document
    colouring = COLOURINGS[colour](document.problem)
    if view.is_changed:
        colouring = view.colouring(colour, COLOURINGS[colour](view.original.problem), colouring)
    event = plan_view(
        [
            make_panel(
                facts,
                colouring,
                dimmed,
                capacity,
                before.plan.arena_bytes if before and view.is_changed else None,
                None if view.is_changed else reserved_curve(document),
            )
        ],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=document.index_of.get(state.get("selected")),
        key="inspect_view",
        on_select=controls.select(document.problem),
        rows=view.rows,
    )
    return event.selected


def _downloads(facts: PlanFacts, colour: str) -> None:
    """Buttons for the report and, in the colouring that is shown, the figures."""
    plan, style = facts.plan, FigureStyle(colour_by=colour)
    name = f"{_file_name(plan.problem.name)}_{plan.strategy}"
    notes = ReportNotes(file=facts.document.label)
    with st.container(key="downloads", horizontal=True, horizontal_alignment="right"):
        st.download_button(
            "Download report",
            lambda: to_html(plan, notes=notes).encode(),
            f"{name}.html",
            "text/html",
            icon=":material/download:",
            type="tertiary",
            on_click="ignore",
            help="One page that opens offline: chart and tables. `memplan report` compares strategies, too.",
        )
        st.download_button(
            "SVG",
            lambda: to_svg(plan, style).encode(),
            f"{name}.svg",
            "image/svg+xml",
            type="tertiary",
            on_click="ignore",
        )
        st.download_button(
            "PNG",
            lambda: to_png(plan, style),
            f"{name}.png",
            "image/png",
            type="tertiary",
            on_click="ignore",
        )


def _file_name(text: str) -> str:
    """`text` as every file system takes it."""
    return re.sub(r"[^\w.+-]", "_", text)[:80] or "plan"


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
    show_note(controls.wrong_strategy(document))
    pick_symbols(document)
    shown = _changed_facts(scenarios.scenario_view(document), strategy, capacity)
    if shown is None:
        return
    view, before, facts, search = shown
    show_figures(facts, capacity)
    if search is not None:
        show_search(search)
    if not len(facts.plan.problem):
        st.info(NOTHING_TO_PLACE)
        return
    dimmed = _dimmed(facts.document, pattern)
    selected = _chart(facts, view, colour, dimmed, capacity, before)
    _downloads(facts, colour)
    if selected is not None:
        with st.container(border=True, key="details"):
            st.markdown("**Selected buffer**")
            st.text(facts.plan.problem.names[selected])
            with st.container(key="facts"):
                columns = st.columns(2)
            show_buffer(facts, selected, columns)
    show_tables(facts, selected, lambda: show_what_if(view, facts, selected, capacity), dimmed)


_page()
