"""The cards below the headline: what can be done about the peak, what it saves, and how to do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count

import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.advising import Advising, advising_of
from memplan_dashboard.session.documents import is_recorded, is_simulated
from memplan_dashboard.session.messages import plain
from memplan_dashboard.session.plan_facts import MOST_AT_ONCE
from memplan_dashboard.session.scenarios import ScenarioView
from memplan_dashboard.views.inspect.allocator_tab import ALLOCATOR
from memplan_dashboard.widgets.code_blocks import show_code
from memplan_dashboard.widgets.planning_options import WITH_WIDGET
from memplan_dashboard.widgets.scrolling import ask_to_scroll
from streamlit.delta_generator import DeltaGenerator

from memplan_engine.advice.values import Advice, Suggestion
from memplan_engine.allocator.answers import SettingsAdvice
from memplan_engine.reporters.allocator.answer_tables import settings_words
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.units import count_of, format_bytes
from memplan_engine.what_if.edits import edits_text

HOW = "What it does, and how"
MOST_CARDS = 4
"""Side by side; what saves less is one click away."""
EVERY_SECONDS = 0.4
LOOKS_BETWEEN = 4
"""From one drawing of the page to the next, unless all is found: it draws all of itself."""
APPLIED = "applied_suggestions"
CHANGED_NOW = "suggestion_changed"
HOW_READ = ("dims", "as_plan", "part")
"""How a file is read is nothing that was applied to it."""
PLAIN = {"what_if": ""} | {name: text for name, text in state.NOTHING_ASKED.items() if name not in HOW_READ}
LABELS = {option.parameter: option.label for option in WITH_WIDGET} | {"what_if": "what-if edits"}
CHANGED = tuple(PLAIN)
"""The choices that a suggestion may change, and those that go with a document."""


def room_for_cards(view: ScenarioView) -> DeltaGenerator:
    """Where they go, of their height, so that nothing moves when they come or are applied; lists and
    recordings rarely have any."""
    rare = "recorded" if is_recorded(view.original) else "few"
    room = st.container(key="suggestions" if view.document.graph is not None else f"suggestions_{rare}")
    # A container without anything in it has no height.
    room.empty()
    return room


def show_suggestions(
    view: ScenarioView, strategy: str, capacity: int | None, show_changes: Callable[[], None]
) -> None:
    """A card each, with what was found so far while there is more to come; below them `show_changes`, what
    was applied, and what was tried besides."""
    advising = advising_of(view.original, view.scenario.edits, strategy, capacity)
    large = len(view.document.problem) > MOST_AT_ONCE
    if not large:
        advising.begin()
    # Before they are drawn: what is found meanwhile is not among them.
    waits, shown = not advising.done.is_set(), advising.advice
    st.fragment(_cards)(advising, view, show_changes)
    if waits:
        st.fragment(_look, run_every=EVERY_SECONDS)(advising, shown, large, count())


def _look(advising: Advising, shown: Advice | None, large: bool, looks: Iterator[int]) -> None:
    """Have the page run once more when all is found, and where the page is not `large` when there is more
    than the advice `shown` for some time; not while it is being drawn, as at the first of the `looks`.

    Apart from the cards: drawing them at every look, on sixteen pages, kept a server from all else.
    """
    if look := next(looks):
        advising.begin()
        more = advising.advice is not shown and look >= LOOKS_BETWEEN and not large
        if more or advising.done.is_set():
            state.run_again()


def _cards(advising: Advising, view: ScenarioView, show_changes: Callable[[], None]) -> None:
    """What was found so far."""
    if st.session_state.pop(CHANGED_NOW, False):
        # A button of a fragment runs the fragment alone, and all of the page has changed.
        st.rerun()
    waits = not advising.done.is_set()
    suggestions = advising.advice.suggestions if advising.advice else ()
    if suggestions:
        columns = st.columns(MOST_CARDS, gap="small")
        for place, (column, each) in enumerate(zip(columns, suggestions, strict=False)):
            with column.container(border=True, key=f"card_{place}"):
                _card(place, each, view)
    elif waits:
        st.caption("Looking for ways to save memory …")
    else:
        _none(advising, view)
    with st.container(key="below_cards", horizontal=True, vertical_alignment="center", gap="small"):
        _undo()
        show_changes()
        st.space("stretch")
        if more := suggestions[MOST_CARDS:]:
            with st.popover(count_of(len(more), "more suggestion"), type="tertiary"):
                for place, each in enumerate(more, MOST_CARDS):
                    with st.container(border=True, key=f"card_{place}"):
                        _card(place, each, view)
        if not waits and advising.advice and advising.advice.rejected:
            with st.popover("Not offered, and why", type="tertiary"):
                for rejected in advising.advice.rejected:
                    st.markdown(f"**{plain(rejected.title)}**: {plain(rejected.reason)}")


def _none(advising: Advising, view: ScenarioView) -> None:
    """Why there are no cards, or what the allocator's settings would change."""
    if not is_recorded(view.original):
        why = advising.advice.why_none if advising.advice else advising.fault
        if view.document.graph is None:
            # What the peak is made of stands above.
            why = (
                f"{why.partition('. ')[0].removesuffix('.')}. Fits in …? Prove it, below the chart, finds "
                "the smallest changes that make it fit a capacity."
            )
        st.caption(plain(f"No suggestion. {why}"))
    if is_simulated(view.original):
        _show_settings(advising.on_settings, advising.fault)


def _show_settings(advice: SettingsAdvice | None, fault: str) -> None:
    """What other settings of the allocator do, and the way to try them and others; the `fault` where they
    could not be simulated."""
    settings = str(advice.settings) if advice and advice.settings else ""
    applied = bool(settings) and state.get("settings") == settings
    told = plain(sentence_case(settings_words(advice)) if advice else fault)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="settings"):
        # Green is for what rests on rules that were compared with recordings.
        green = settings and advice is not None and not advice.is_rules_only
        st.markdown(f":green[{told}]" if green else told, width="content")
        st.button(
            "Undo" if applied else "Apply" if settings else "Try allocator settings",
            key="try_settings",
            type="secondary" if settings else "tertiary",
            help="What PyTorch's allocator would reserve: tab Allocator, below.",
            on_click=_open_allocator,
            args=("" if applied else settings,),
        )


def _open_allocator(settings: str) -> None:
    state.choose(tab=ALLOCATOR, settings=settings)
    ask_to_scroll("tables")
    st.session_state[CHANGED_NOW] = True


def _card(place: int, suggestion: Suggestion, view: ScenarioView) -> None:
    fits = {True: ", fits", False: ", does not fit", None: ""}[suggestion.fits]
    note = f" {sentence_case(suggestion.note)}" if suggestion.note else ""
    st.markdown(f":green[**−{format_bytes(suggestion.saved_bytes)}**] {plain(suggestion.title)}")
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.caption(f"{suggestion.numerics} · {format_bytes(suggestion.arena_bytes)}{fits}", width="stretch")
        if place < MOST_CARDS:
            with st.popover(HOW, icon=":material/code:", type="tertiary", help=HOW):
                _how(suggestion, note)
        st.button(
            "Apply",
            key=f"apply_{place}_{suggestion.title}",
            help="Plan with this change. The address keeps it; Undo reverts it.",
            on_click=_apply,
            args=(suggestion, view),
        )
    if place >= MOST_CARDS:
        # In a popover there is no other one.
        with st.expander(HOW):
            _how(suggestion, note)


def _how(suggestion: Suggestion, note: str) -> None:
    st.markdown(plain(f"{suggestion.title}.{note}"))
    show_code(suggestion.code)


def _apply(suggestion: Suggestion, view: ScenarioView) -> None:
    """Make its options and edits those of the plan on screen."""
    before = {name: state.get(name) for name in ("doc", *CHANGED)}
    st.session_state[APPLIED] = [*st.session_state.get(APPLIED, []), (suggestion.title, before)]
    changed = state.option_choices(replace(view.original.options, how=suggestion.how))
    state.choose(**changed, what_if=edits_text(suggestion.all_edits))
    st.session_state[CHANGED_NOW] = True


def _undo() -> None:
    """What was applied last, and the way back."""
    applied = st.session_state.get(APPLIED, [])
    now = {name: state.get(name) for name in ("doc", *CHANGED)}
    while applied and (applied[-1][1] == now or applied[-1][1]["doc"] != now["doc"]):
        # It was undone by other means, or belongs to another document.
        applied.pop()
    if applied:
        title, before = applied[-1]
        told, label = f"Applied: {title}", "Undo"
    elif before := {name: plain for name, plain in PLAIN.items() if now[name] != plain}:
        # Another visit applied it: the address has only what it came to.
        told, label = f"Applied: {', '.join(LABELS.get(name, name) for name in before)}", "Undo all"
    else:
        return
    with st.container(
        horizontal=True, vertical_alignment="center", gap="small", key="applied", width="content"
    ):
        st.caption(plain(told), width="content")
        st.button(
            label,
            key="undo_suggestion",
            icon=":material/undo:",
            type="tertiary",
            on_click=_take_back,
            args=(before,),
        )


def _take_back(before: Mapping[str, str]) -> None:
    if st.session_state.get(APPLIED):
        st.session_state[APPLIED].pop()
    state.choose(**before)
    st.session_state[CHANGED_NOW] = True
