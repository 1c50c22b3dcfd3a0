"""What if: the bar above the chart, with what the changes come to, and the tab that makes and lists them.

The tab also says whether the plan fits a capacity, and offers the smallest changes that make it fit.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st
from memplan_dashboard.session import scenarios, state
from memplan_dashboard.session.messages import plain, show_error
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.session.scenarios import ScenarioView
from memplan_dashboard.session.state import mebibytes_text
from memplan_dashboard.widgets.tables import SHARE, WHOLE

from memplan_engine import (
    Align,
    Drop,
    Edit,
    FitReport,
    MemplanError,
    Pin,
    Resize,
    Scenario,
    Shorten,
    Split,
    Suggestion,
    Verdict,
)
from memplan_engine.formats.csv_tables.csv_writer import to_csv
from memplan_engine.formats.memplan_json.edits_format import dump_edits
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.reporters.what_if_tables import (
    ROWS,
    edit_words,
    proof_words,
    shortage_words,
    signed,
    suggestion_words,
    verdict_words,
)
from memplan_engine.units import format_bytes, parse_bytes
from memplan_engine.what_if.edits import MOST_EDITS, MOST_PARTS
from memplan_engine.what_if.suggestions.cover import Shortage

HELP = {
    "arena": "What must be allocated.",
    "demand": "The most bytes alive at one step.",
    "packing loss": "Arena minus demand.",
    "lower bound": "No arena can be smaller.",
}
FAULT = "what_if_fault"
ACTIONS = ("Resize", "Drop", "Pin", "Split", "Lifetime", "Align")
MOST_LISTED = 12
"""How many changes are listed, the latest."""
MOST_MEMBERS = 500


def show_bar(view: ScenarioView, before: PlanFacts | None, after: PlanFacts | None) -> None:
    """Nothing while there is no change, done or undone."""
    scenario = view.scenario
    if not (scenario.edits or scenario.undone):
        return
    with st.container(border=True, key="what_if_bar"):
        left, right = st.columns([3, 2], vertical_alignment="center")
        count = len(scenario.edits)
        left.markdown(f"**What if**: {count} change{'s' * (count != 1)}")
        with right:
            _history_buttons(scenario)
        if before is not None and after is not None and scenario.edits:
            _before_and_after(before, after)


def _history_buttons(scenario: Scenario) -> None:
    with st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        for label, icon, able, then in (
            ("Undo", "undo", scenario.edits, scenario.undo()),
            ("Redo", "redo", scenario.undone, scenario.redo()),
            ("Reset", "restart_alt", scenario.edits, Scenario()),
        ):
            st.button(
                label,
                icon=f":material/{icon}:",
                key=f"what_if_{label.lower()}",
                disabled=not able,
                on_click=scenarios.take,
                args=(then,),
            )


def _before_and_after(before: PlanFacts, after: PlanFacts) -> None:
    old, new = before.figures, after.figures
    row = st.container(key="figures_what_if").columns(len(ROWS), gap="small")
    for column, (label, field) in zip(row, ROWS.items(), strict=True):
        was, now = getattr(old, field), getattr(new, field)
        column.metric(
            f"{label[:1].upper()}{label[1:]}, before → after",
            f"{format_bytes(was)} → {format_bytes(now)}" if was != now else format_bytes(now),
            signed(now - was) if was != now else "unchanged",
            delta_color="inverse" if was != now else "off",
            delta_arrow="auto" if was != now else "off",
            help=HELP[label],
        )
    if new.workspace:
        with_it = f"{format_bytes(old.total)} → {format_bytes(new.total)}"
        st.caption(
            plain(f"with {format_bytes(new.workspace)} of {new.workspace_name} beside the arena: {with_it}")
        )
    if after.plan.strategy != before.plan.strategy:
        st.caption(plain(f"before: {before.plan.strategy}; after: {after.plan.strategy}"))


def show_what_if(view: ScenarioView, facts: PlanFacts, selected: int | None, capacity: int | None) -> None:
    """All of the tab; `facts` are those of the changed plan."""
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
    show_capacity(view, facts, capacity)
    st.markdown("**Export**")
    _export(view, facts)


def _change(view: ScenarioView, facts: PlanFacts, selected: int) -> None:
    problem = facts.plan.problem
    buffer = problem[selected]
    st.text(buffer.name)
    action = st.segmented_control("Change", ACTIONS, default=ACTIONS[0], key="what_if_action", required=True)
    key = f"what_if_{action}_{selected}_{hash(view.scenario.edits)}"
    offset = int(facts.plan.offsets[selected])
    in_bytes: dict[str, tuple[type[Resize | Pin | Align], str, int, str]] = {
        "Resize": (Resize, "New size", buffer.size, "Bytes, or as 512KiB or 100MB."),
        "Pin": (Pin, "Offset", offset, "Bytes, or as 512KiB or 100MB. It lies there now."),
        "Align": (Align, "Alignment", buffer.alignment, "Bytes, or as 4KiB."),
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
        st.caption("None yet. The plan is made anew at once, and drawn beside the arena before.")
    for place, edit in enumerate(edits[-MOST_LISTED:], max(0, len(edits) - MOST_LISTED)):
        words, button = st.columns([6, 1], vertical_alignment="center")
        words.text(f"{place + 1}. {edit_words(edit)}")
        if button.button(
            "", icon=":material/close:", key=f"what_if_remove_{place}", type="tertiary", help="Take it back"
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


def show_capacity(view: ScenarioView, facts: PlanFacts, capacity: int | None) -> None:
    """The capacity is the one of the row above; here it may be written as 512KiB."""
    st.markdown("**Does it fit?**")
    current = _written(capacity)
    if st.session_state.get("what_if_capacity_was") != capacity:
        st.session_state.what_if_capacity_was, st.session_state.what_if_capacity = capacity, current
    st.session_state.setdefault("what_if_capacity", current)
    text = st.text_input(
        "Capacity in bytes",
        key="what_if_capacity",
        placeholder="512KiB",
        on_change=_take,
        help="Bytes, or as 512KiB or 100MB (10^8).",
    )
    fault = st.session_state.get("what_if_capacity_fault")
    if fault and text:
        show_error(fault)
        return
    if not capacity:
        st.caption("Give a capacity to see whether it fits, and the smallest change that makes it fit.")
        return
    _answer(view, scenarios.fit_of(facts.plan, capacity))


def _take() -> None:
    text = st.session_state.what_if_capacity.strip()
    try:
        nbytes = parse_bytes(text, "capacity") if text else 0
    except MemplanError as error:
        st.session_state.what_if_capacity_fault = str(error)
        return
    st.session_state.what_if_capacity_fault = ""
    st.session_state.what_if_capacity_was = nbytes or None
    state.choose(capacity=mebibytes_text(nbytes / 2**20))


def _written(capacity: int | None) -> str:
    if not capacity:
        return ""
    short = format_bytes(capacity)
    try:
        exact = parse_bytes(short) == capacity
    except MemplanError:
        # Rounded, it is no whole number of bytes: 10.24 KiB.
        exact = False
    return short if exact else str(capacity)


def _answer(view: ScenarioView, fit: FitReport) -> None:
    verdict = fit.decision.verdict
    kind = st.error if verdict is Verdict.DOES_NOT_FIT else st.success if fit.decision.whole else st.warning
    kind(plain(verdict_words(fit)))
    if fit.shortage is not None:
        st.caption(plain(shortage_words(fit.shortage)))
    for place, suggestion in enumerate(fit.suggestions):
        _suggestion(view, fit, suggestion, place)
    if verdict is not Verdict.FITS and not fit.suggestions:
        st.caption("No change was found that makes it fit.")
    if not fit.complete:
        st.caption("Looked for as long as a page may take; the command line can look longer.")
    if fit.shortage is not None:
        with st.expander(f"Who is alive at the {fit.shortage.steps:,} overfull steps"):
            _members(fit, fit.shortage)


def _suggestion(view: ScenarioView, fit: FitReport, suggestion: Suggestion, place: int) -> None:
    words, button = st.columns([5, 1], vertical_alignment="center")
    words.text(suggestion_words(suggestion, fit.decision.plan.problem))
    words.caption(plain(f"arena then {format_bytes(suggestion.arena_bytes)} · {proof_words(suggestion)}"))
    room = MOST_EDITS - len(view.scenario.edits) - len(suggestion.edits)
    button.button(
        "Apply",
        key=f"what_if_apply_{place}",
        disabled=room < 0,
        help=None if room >= 0 else f"An address holds {MOST_EDITS} changes.",
        on_click=scenarios.attempt,
        args=(view, *suggestion.edits),
    )


def _members(fit: FitReport, shortage: Shortage) -> None:
    names, steps = fit.decision.plan.problem.names, shortage.steps
    members = shortage.members[:MOST_MEMBERS]
    rows = pd.DataFrame(
        {
            "buffer": [names[each.buffer] for each in members],
            "size": [format_bytes(each.nbytes) for each in members],
            "bytes": [each.nbytes for each in members],
            "overfull steps": [each.steps for each in members],
            "of them": [each.steps / steps for each in members],
            "enough alone": [each.buffer in shortage.single for each in members],
        }
    )
    columns = {"bytes": WHOLE, "of them": SHARE}
    st.dataframe(rows, hide_index=True, key="what_if_members", column_config=columns)
    if len(shortage.members) > MOST_MEMBERS:
        st.caption(f"and {len(shortage.members) - MOST_MEMBERS:,} more")
