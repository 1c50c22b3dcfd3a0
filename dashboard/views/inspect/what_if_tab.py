"""The tab "What if": change the selected buffer, list the changes, ask whether it fits, export."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from memplan_dashboard.session import scenarios, state
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.scenarios import Changed
from memplan_dashboard.views.inspect.what_if_capacity import show_capacity

from memplan_engine import Align, Drop, Edit, MemplanError, Pin, Resize, Shorten, Split
from memplan_engine.formats.csv_tables.csv_writer import to_csv
from memplan_engine.formats.memplan_json.edits_format import dump_edits
from memplan_engine.formats.memplan_json.json_writer import dumps
from memplan_engine.reporters.what_if_words import edit_words
from memplan_engine.units import parse_bytes
from memplan_engine.what_if.edits import MOST_PARTS

FAULT = "what_if_fault"
ACTIONS = ("Resize", "Drop", "Pin", "Split", "Lifetime", "Align")


def show_what_if(found: Changed, facts: Facts, selected: int | None, capacity: int | None) -> None:
    """All of the tab; `facts` are those of the changed plan."""
    with st.container(key="halves_what_if"):
        left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Change a buffer**")
        if selected is None:
            st.caption("Select a buffer in the chart or in a table, and change it here.")
        else:
            _change(found, facts, selected)
        _fault()
    with right:
        st.markdown("**Changes**")
        _list(found)
    show_capacity(found, facts, capacity)
    st.markdown("**Export**")
    _export(found, facts)


def _change(found: Changed, facts: Facts, selected: int) -> None:
    problem = facts.plan.problem
    buffer = problem[selected]
    st.text(buffer.name)
    action = st.segmented_control("Change", ACTIONS, default=ACTIONS[0], key="what_if_action", required=True)
    key = f"what_if_{action}_{selected}_{hash(found.scenario.edits)}"
    offset = int(facts.plan.offsets[selected])
    make: Callable[[], Edit]
    if action == "Resize":
        text = st.text_input("New size", str(buffer.size), key=key, help="Bytes, or as 512KiB or 100MB.")
        make = lambda: Resize(buffer.name, parse_bytes(text, "new size"))  # noqa: E731
    elif action == "Pin":
        text = st.text_input(
            "Offset", str(offset), key=key, help="Bytes, or as 512KiB or 100MB. It lies there now."
        )
        make = lambda: Pin(buffer.name, parse_bytes(text, "offset"))  # noqa: E731
    elif action == "Split":
        parts = int(st.number_input("Parts", 2, MOST_PARTS, 2, key=key))
        make = lambda: Split(buffer.name, parts)  # noqa: E731
    elif action == "Lifetime":
        first, last = st.columns(2)
        start = int(first.number_input("First step", 0, None, buffer.start, key=f"{key}_first"))
        end = int(last.number_input("Last step", 0, None, buffer.end - 1, key=f"{key}_last"))
        make = lambda: Shorten(buffer.name, start, end + 1)  # noqa: E731
    elif action == "Align":
        text = st.text_input("Alignment", str(buffer.alignment), key=key, help="Bytes, or as 4KiB.")
        make = lambda: Align(buffer.name, parse_bytes(text, "alignment"))  # noqa: E731
    else:
        make = lambda: Drop(buffer.name)  # noqa: E731
    with st.container(horizontal=True, gap="small"):
        if st.button(f"{action} it" if action == "Drop" else "Change", key="what_if_make", type="primary"):
            _make(found, make)
        if action == "Pin" and buffer.fixed is not None and st.button("Let it lie anywhere"):
            _make(found, lambda: Pin(buffer.name, None))


def _make(found: Changed, make: Callable[[], Edit]) -> None:
    """Make the edit and begin anew; what cannot be made is explained then."""
    try:
        scenarios.attempt(found, make())
    except MemplanError as error:
        st.session_state[FAULT] = str(error)
    st.rerun()


def _fault() -> None:
    fault = st.session_state.pop(FAULT, "")
    if fault:
        st.error(plain(fault), icon=":material/error:")


def _list(found: Changed) -> None:
    edits = found.scenario.edits
    if not edits:
        st.caption("None yet. The plan is made anew at once, and drawn beside the arena before.")
    for place, edit in enumerate(edits[-MOST_LISTED:], max(0, len(edits) - MOST_LISTED)):
        words, button = st.columns([6, 1], vertical_alignment="center")
        words.text(f"{place + 1}. {edit_words(edit)}")
        if button.button(
            "", icon=":material/close:", key=f"what_if_remove_{place}", type="tertiary", help="Take it back"
        ):
            _remove(found, place)
    if len(edits) > MOST_LISTED:
        st.caption(f"and {len(edits) - MOST_LISTED} before these")


def _remove(found: Changed, place: int) -> None:
    scenario = found.scenario.without(place)
    try:
        scenario.of(found.original.problem)
    except MemplanError as error:
        st.session_state[FAULT] = f"it is needed by a later change: {error}"
    else:
        scenarios.take(scenario)
    st.rerun()


MOST_LISTED = 12
"""How many changes are listed, the latest."""


def _export(found: Changed, facts: Facts) -> None:
    stem = state.get("doc").partition(":")[2].partition(".")[0] or "plan"
    plan, edits = facts.plan, found.scenario.edits
    files: tuple[tuple[str, str, str, Callable[[], bytes]], ...] = (
        ("Plan, JSON", "plan.json", "application/json", lambda: dumps(plan)),
        ("Plan, CSV", "plan.csv", "text/csv", lambda: to_csv(plan)),
        ("Problem, JSON", "problem.json", "application/json", lambda: dumps(plan.problem)),
        ("Problem, CSV", "problem.csv", "text/csv", lambda: to_csv(plan.problem)),
        ("Changes, JSON", "edits.json", "application/json", lambda: dump_edits(edits)),
    )
    with st.container(horizontal=True, gap="small"):
        for label, name, kind, content in files:
            st.download_button(
                label,
                content,
                file_name=f"{stem}-what-if-{name}",
                mime=kind,
                key=f"what_if_export_{name}",
                icon=":material/download:",
                on_click="ignore",
            )
