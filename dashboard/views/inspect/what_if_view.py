"""What if: what the changes come to in a few words, and the tab that makes and lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import streamlit as st
from memplan_dashboard.session import scenarios, state
from memplan_dashboard.session.messages import plain, show_error
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.session.scenarios import ScenarioView
from memplan_dashboard.views.inspect.suggestions import CHANGED_NOW
from memplan_dashboard.widgets.controls import trend

from memplan_engine import (
    Align,
    Drop,
    Edit,
    MemplanError,
    Pin,
    Resize,
    Scenario,
    Shorten,
    Split,
)
from memplan_engine.analysis.buffer_names import labels_of
from memplan_engine.formats.csv_tables.csv_writer import to_csv
from memplan_engine.formats.memplan_json.edits_format import dump_edits
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.reporters.what_if_tables import (
    ROWS,
    edit_words,
)
from memplan_engine.units import count_of, format_bytes, format_signed, parse_bytes
from memplan_engine.what_if.edits import MOST_PARTS

HELP = {
    "arena": "The bytes to allocate.",
    "demand": "Peak live bytes: the largest sum of live buffers at any step.",
    "packing loss": "Arena minus demand.",
    "lower bound": "No arena can be smaller.",
}
FAULT = "what_if_fault"
ACTIONS = ("Resize", "Drop", "Pin", "Split", "Lifetime", "Align")
MOST_LISTED = 12
"""How many changes are listed, the latest."""


def show_changes(scenario: Scenario, before: PlanFacts | None, after: PlanFacts | None) -> None:
    """What the changes come to and the way back, in a row; nothing while there is no change, done or
    undone."""
    if not (scenario.edits or scenario.undone):
        return
    with st.container(
        key="what_if_bar", horizontal=True, vertical_alignment="center", gap="small", width="content"
    ):
        st.markdown(f"**What if**: {count_of(len(scenario.edits), 'change')}", width="content")
        if before is not None and after is not None and scenario.edits:
            was, now = before.plan.arena_bytes, after.plan.arena_bytes
            told = f"arena {format_bytes(was)} → {format_bytes(now)}" if now != was else "same arena"
            color: Literal["green", "red", "gray"] = "green" if now < was else "red" if now > was else "gray"
            st.badge(plain(told), color=color, help="Demand, packing loss and bound: tab What if, below.")
        _history_buttons(scenario)


def _history_buttons(scenario: Scenario) -> None:
    for label, icon, able, then in (
        ("Undo", "undo", scenario.edits, scenario.undo()),
        ("Redo", "redo", scenario.undone, scenario.redo()),
        ("Reset", "restart_alt", scenario.edits, Scenario()),
    ):
        st.button(
            label,
            icon=f":material/{icon}:",
            key=f"what_if_{label.lower()}",
            type="tertiary",
            help=f"{label} the what-if changes" if label == "Reset" else f"{label} the last what-if change",
            disabled=not able,
            on_click=_take,
            args=(then,),
        )


def _take(scenario: Scenario) -> None:
    scenarios.take(scenario)
    st.session_state[CHANGED_NOW] = True


def _before_and_after(before: PlanFacts, after: PlanFacts) -> None:
    old, new = before.figures, after.figures
    row = st.container(key="figures_what_if").columns(len(ROWS), gap="small")
    for column, (label, field) in zip(row, ROWS.items(), strict=True):
        was, now = getattr(old, field), getattr(new, field)
        column.metric(
            f"{label[:1].upper()}{label[1:]}, before → after",
            f"{format_bytes(was)} → {format_bytes(now)}" if was != now else format_bytes(now),
            format_signed(now - was) if was != now else "unchanged",
            **trend(now - was),
            help=HELP[label],
        )
    if new.workspace:
        with_it = f"{format_bytes(old.total)} → {format_bytes(new.total)}"
        st.caption(
            plain(f"with {format_bytes(new.workspace)} of {new.workspace_name} outside the arena: {with_it}")
        )
    if after.plan.strategy != before.plan.strategy:
        st.caption(plain(f"before: {before.plan.strategy}; after: {after.plan.strategy}"))


def show_what_if(
    view: ScenarioView, before: PlanFacts | None, facts: PlanFacts, selected: int | None
) -> None:
    """All of the tab; `facts` are those of the changed plan, `before` those without the changes."""
    if before is not None and view.is_changed:
        _before_and_after(before, facts)
    with st.container(key="halves_what_if"):
        left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Change a buffer**")
        if selected is None:
            st.caption("Select a buffer in the chart or in a table, and change it here.")
        else:
            _change(view, facts, selected)
        if fault := st.session_state.pop(FAULT, ""):
            show_error(fault)
    with right:
        st.markdown("**Changes**")
        _list(view)
    st.markdown("**Export**")
    _export(view, facts)


def _change(view: ScenarioView, facts: PlanFacts, selected: int) -> None:
    problem = facts.plan.problem
    buffer = problem[selected]
    known = labels_of(problem).get(buffer.name, buffer.name)
    own = "" if known == buffer.name else f" :gray[{plain(buffer.name)}]"
    st.markdown(f"{plain(known)}{own}")
    action = st.segmented_control("Change", ACTIONS, default=ACTIONS[0], key="what_if_action", required=True)
    key = f"what_if_{action}_{selected}_{hash(view.scenario.edits)}"
    offset = int(facts.plan.offsets[selected])
    in_bytes: dict[str, tuple[type[Resize | Pin | Align], str, int, str]] = {
        "Resize": (Resize, "New size", buffer.size, "In bytes, or such as 512KiB or 100MB."),
        "Pin": (Pin, "Offset", offset, "In bytes, or such as 512KiB or 100MB. Shown: where it lies now."),
        "Align": (Align, "Alignment", buffer.alignment, "In bytes, or such as 4KiB."),
    }
    make: Callable[[], Edit]
    if action in in_bytes:
        kind, label, now, told = in_bytes[action]
        text = st.text_input(label, str(now), key=key, help=told)
        make = lambda: kind(buffer.name, parse_bytes(text, label.lower()))  # noqa: E731
    elif action == "Split":
        parts = int(st.number_input("Parts", 2, MOST_PARTS, 2, key=key))
        make = lambda: Split(buffer.name, parts)  # noqa: E731
    elif action == "Lifetime":
        first, last = st.columns(2)
        start = int(first.number_input("First step", 0, None, buffer.start, key=f"{key}_first"))
        end = int(last.number_input("Last step", 0, None, buffer.end - 1, key=f"{key}_last"))
        make = lambda: Shorten(buffer.name, start, end + 1)  # noqa: E731
    else:
        make = lambda: Drop(buffer.name)  # noqa: E731
    with st.container(horizontal=True, gap="small"):
        if st.button(f"{action} it" if action == "Drop" else "Change", key="what_if_make", type="primary"):
            _make(view, make)
        if action == "Pin" and buffer.fixed is not None and st.button("Unpin"):
            _make(view, lambda: Pin(buffer.name, None))


def _make(view: ScenarioView, make: Callable[[], Edit]) -> None:
    """Make the edit and begin anew; what cannot be made is explained then."""
    try:
        scenarios.attempt(view, make())
    except MemplanError as error:
        st.session_state[FAULT] = str(error)
    st.rerun()


def _list(view: ScenarioView) -> None:
    edits = view.scenario.edits
    if not edits:
        st.caption("None yet. Each change replans at once and is drawn beside the original arena.")
    for place, edit in enumerate(edits[-MOST_LISTED:], max(0, len(edits) - MOST_LISTED)):
        words, button = st.columns([6, 1], vertical_alignment="center")
        words.text(f"{place + 1}. {edit_words(edit)}")
        if button.button(
            "",
            icon=":material/close:",
            key=f"what_if_remove_{place}",
            type="tertiary",
            help="Remove this change",
        ):
            _remove(view, place)
    if len(edits) > MOST_LISTED:
        st.caption(f"and {len(edits) - MOST_LISTED} before these")


def _remove(view: ScenarioView, place: int) -> None:
    scenario = view.scenario.without(place)
    try:
        scenario.of(view.original.problem)
    except MemplanError as error:
        st.session_state[FAULT] = f"it is needed by a later change: {error}"
    else:
        scenarios.take(scenario)
    st.rerun()


def _export(view: ScenarioView, facts: PlanFacts) -> None:
    stem = state.get("doc").partition(":")[2].partition(".")[0] or "plan"
    plan, edits = facts.plan, view.scenario.edits
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
