"""Inspect: one plan, what its peak is made of, and everything about the buffer that is selected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import streamlit as st
from memplan_dashboard.plan_view import Found, plan_view
from memplan_dashboard.plan_view.component import Marks
from memplan_dashboard.session import scenarios, searches, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import NOTHING_TO_PLACE, errors_shown, show_error, show_note
from memplan_dashboard.session.plan_facts import PlanFacts, colouring_of
from memplan_dashboard.session.scenarios import ScenarioView
from memplan_dashboard.session.searches import Search
from memplan_dashboard.views.inspect.buffer_filter import MOST_PATTERN, misses, pattern_of, typed_of
from memplan_dashboard.views.inspect.buffer_tables import show_tables
from memplan_dashboard.views.inspect.downloads import show_downloads
from memplan_dashboard.views.inspect.figures_row import (
    show_exactly,
    show_figures,
    show_headline,
    show_notes,
)
from memplan_dashboard.views.inspect.fits import show_proof
from memplan_dashboard.views.inspect.head_start import listen
from memplan_dashboard.views.inspect.lanes_view import show_lanes
from memplan_dashboard.views.inspect.memory_tabs import reserved_curve
from memplan_dashboard.views.inspect.recording_story import Story, show_story, story_of
from memplan_dashboard.views.inspect.suggestions import room_for_cards, show_suggestions
from memplan_dashboard.views.inspect.what_if_view import FAULT, show_changes, show_what_if
from memplan_dashboard.widgets import controls, planning_options
from memplan_dashboard.widgets.buffer_details import show_buffer
from memplan_dashboard.widgets.plan_panels import has_panes, make_panel
from memplan_dashboard.widgets.planning_options import pick_symbols
from memplan_dashboard.widgets.scrolling import ask_to_scroll
from memplan_dashboard.widgets.search_panel import settle, show_search
from numpy.typing import NDArray
from streamlit.delta_generator import DeltaGenerator

from memplan_engine import MemplanError
from memplan_engine.what_if.edits import Pin

LAST = "last_strategy"
WHY = "why_here"
VIEW = "inspect_view"
HEIGHT = 396
"""Of the chart, CSS pixels, where the panes stack; beside them it takes what the window leaves."""
ACTIONS = {
    "why": ("Why here?", "Replay the decision that placed it"),
    "pin": ("Pin", "Keep it at this offset, whatever else changes"),
    "what_if": ("What if …", "Another size, lifetime or alignment, and the plan with it"),
}
"""What can be done with the buffer that is selected: label and help."""


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
        return misses(document.problem, pattern)
    return None


def _found(document: Document, pattern: str, dimmed: NDArray[np.bool_] | None) -> Found:
    """What the search field of the chart shows."""
    if dimmed is None:
        return Found("", typed_of(pattern), 0, 0)
    rows = np.flatnonzero(~dimmed)
    return Found(pattern, typed_of(pattern), len(rows), int(document.problem.size[rows].sum()))


def _changed_facts(
    view: ScenarioView, strategy: str, capacity: int | None
) -> tuple[ScenarioView, Callable[[], None], PlanFacts | None, PlanFacts, Search | None] | None:
    """What is shown: the changes, what shows what they come to, the plan without them (None where there are
    none, or no such plan), and the plan with them; without them where it fails."""
    planned = _facts(view.document, scenarios.strategy_for(view, strategy), capacity)
    is_plain = not (view.scenario.edits or view.scenario.undone)
    before = None if is_plain else scenarios.original_facts(view, strategy)
    changes = partial(show_changes, view.scenario, before, planned[0] if planned else None)
    if planned is None and not is_plain:
        view = view.unchanged()
        planned = _facts(view.document, strategy, capacity)
    if planned is None:
        changes()
        return None
    return (view, changes, before, *planned)


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """What the page is about: the choices above the chart, and the plan."""

    view: ScenarioView
    changes: Callable[[], None]
    facts: PlanFacts
    before: PlanFacts | None
    search: Search | None
    strategy: str
    colour: str
    pattern: str
    capacity: int | None
    dimmed: NDArray[np.bool_] | None
    story: Story | None
    marks: Marks


def _chart(shown: _Shown) -> int | None:
    """Draw the plan; gives the selected buffer."""
    view, facts, colour, before = shown.view, shown.facts, shown.colour, shown.before
    document = facts.document
    colouring = colouring_of(document, colour)
    if view.is_changed:
        colouring = view.colouring(colour, colouring_of(view.original, colour), colouring)
    event = plan_view(
        [
            make_panel(
                facts,
                colouring,
                shown.dimmed,
                shown.capacity,
                before.plan.arena_bytes if before and view.is_changed else None,
                None if view.is_changed else reserved_curve(document),
                panes=True,
            )
        ],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=document.index_of.get(state.get("selected")),
        key=VIEW,
        height=HEIGHT,
        on_select=controls.select(document.problem),
        marks=shown.marks,
        on_mark=controls.mark,
        find=_found(document, shown.pattern, shown.dimmed),
        on_find=lambda text: state.choose(find=pattern_of(text)),
        rows=view.rows,
        actions=ACTIONS,
        on_action=lambda name, buffer: _act(name, buffer, facts, view),
    )
    return event.selected


def _act(name: str, buffer: int, facts: PlanFacts, view: ScenarioView) -> None:
    """Carry out one of ACTIONS."""
    problem = facts.plan.problem
    if not 0 <= buffer < len(problem):
        return
    chosen = problem.names[buffer]
    if name == "pin":
        try:
            scenarios.attempt(view, Pin(chosen, int(facts.plan.offsets[buffer])))
        except MemplanError as error:
            st.session_state[FAULT] = str(error)
    elif name == "what_if":
        state.choose(selected=chosen, tab="What if")
        ask_to_scroll("tables")
    else:
        state.choose(selected=chosen)
        # A callback cannot change the page; the run that follows it does.
        st.session_state[WHY] = chosen


def _choices() -> _Shown | None:
    """The choices, and the plan that they lead to; None where there is nothing to draw."""
    document = state.current_document()
    row = controls.row([2.4, 1.9, 1.3, 1.3, 1.1])
    with row[0]:
        controls.pick_document()
    with row[1]:
        strategy = controls.pick_strategy(document)
    with row[2]:
        colour = controls.pick_colouring(document)
    with row[3]:
        capacity = controls.pick_capacity()
    with row[4]:
        planning_options.pick_preparation(document)
    show_note(controls.wrong_strategy(document))
    pick_symbols(document)
    shown = _changed_facts(scenarios.scenario_view(document), strategy, capacity)
    if shown is None:
        return None
    view, changes, before, facts, search = shown
    show_note(controls.wrong_marks(facts.plan.problem))
    marks = controls.marked_steps(facts.plan.problem)
    story = story_of(view.original, marks)
    pattern = state.get("find")[:MOST_PATTERN]
    return _Shown(
        view=view,
        changes=changes,
        facts=facts,
        before=before,
        search=search,
        strategy=strategy,
        colour=colour,
        pattern=pattern,
        capacity=capacity,
        dimmed=_dimmed(facts.document, pattern),
        story=story,
        marks=marks if story is None else story.marks,
    )


def _answer(shown: _Shown) -> DeltaGenerator:
    """What the peak is made of in words, and what is known of the plan; gives the room for suggestions."""
    facts, story = shown.facts, shown.story
    if story is not None:
        show_story(story)
    if len(facts.plan.problem) and (story is None or shown.marks[1] is not None):
        show_headline(facts, shown.marks)
    show_figures(facts, shown.capacity)
    if not len(facts.plan.problem):
        st.info(NOTHING_TO_PLACE)
    # The chart is drawn before the cards that stand above it: they take longer to write than it does.
    cards = room_for_cards(shown.view)
    if shown.search is not None:
        show_search(shown.search)
    return cards


def _to_take(shown: _Shown) -> None:
    """The exact figures, whether they are enough, and the files, in one row."""
    with st.container(key="to_take", horizontal=True, vertical_alignment="center", gap="small"):
        show_exactly(shown.facts)
        show_proof(shown.view, shown.facts, shown.capacity)
        show_downloads(shown.facts, shown.colour, shown.marks)


def _evidence(shown: _Shown, selected: int | None) -> None:
    """What stands behind the figures, and the tables."""
    facts = shown.facts
    show_notes(facts)
    if selected is not None and not has_panes(facts.plan.problem):
        with st.container(border=True, key="details"):
            st.markdown("**Selected buffer**")
            st.text(facts.plan.problem.names[selected])
            with st.container(key="facts"):
                columns = st.columns(2)
            show_buffer(facts, selected, columns)
    what_if = lambda: show_what_if(shown.view, shown.before, facts, selected)  # noqa: E731
    show_tables(facts, shown.marks, selected, what_if, shown.dimmed, shown.story)


def _page() -> None:
    listen()
    if why := st.session_state.pop(WHY, None):
        state.lead_on("views/replay_strategy.py", buffer=why)
    # Each part has its place from the first: an element that another run finds at another place, as behind a
    # spinner that is gone, may stay hidden in Streamlit 1.67.
    with st.container(key="first_screen"):
        with st.container(key="answer"):
            choices, told = st.container(key="choices"), st.container(key="told")
        lanes, picture, files = st.container(), st.container(key="picture"), st.container()
    evidence = st.container()
    with choices:
        shown = _choices()
    if shown is None:
        return
    # A chart that stands is drawn anew first of all; a new one comes when what is above it has its height.
    is_empty, stands = not len(shown.facts.plan.problem), VIEW in st.session_state
    if is_empty or not stands:
        with told:
            cards = _answer(shown)
    if is_empty:
        with cards:
            shown.changes()
        return
    with picture:
        selected = _chart(shown)
    if stands:
        with told:
            cards = _answer(shown)
    with cards:
        show_suggestions(shown.view, shown.strategy, shown.capacity, shown.changes)
    with lanes:
        show_lanes(shown.facts.document)
    with files:
        _to_take(shown)
    with evidence:
        _evidence(shown, selected)


_page()
