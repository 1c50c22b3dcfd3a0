"""The last changes of all series, with their causes as these are worked out, and what one can do."""

from __future__ import annotations

import shlex

import pandas as pd
import streamlit as st
from memplan_dashboard.session import change_causes, state, stores
from memplan_dashboard.session.messages import errors_shown, plain, show_error
from memplan_dashboard.session.stores import StorePlace
from memplan_dashboard.views.history.bisect_panel import show_bisect
from memplan_dashboard.views.history.history_choices import (
    Filters,
    Judged,
    Shown,
    open_diff,
    series_key,
)
from memplan_dashboard.widgets.controls import bound
from memplan_dashboard.widgets.tables import selectable

from memplan_engine.history.acknowledging import acknowledge_commit
from memplan_engine.history.alarms import ChangeState
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.history_values import SHORT_HASH
from memplan_engine.reporters.history.change_words import (
    arena_words,
    change_words,
    date_of,
    gap_sentence,
    meant_sentence,
)
from memplan_engine.units import format_signed

MOST_CHANGES = 25
"""Rows: each has a cause to be worked out."""
MOST_SOUGHT = 200
"""Changes whose causes are looked at for a module."""
EVERY_SECONDS = 0.4
WORK_SECONDS = 1.0
"""Of a look at causes: then what is found is shown."""
MARKS = {
    ChangeState.TO_LOOK_AT: "⚠ ",
    ChangeState.LOWER: "✓ ",
    ChangeState.WITHIN_LIMIT: "",
    ChangeState.BESIDE: "",
    ChangeState.MADE_GOOD: "✓ ",
    ChangeState.ACKNOWLEDGED: "",
}
NOT_YET = "…"
SHORT = SHORT_HASH // 2 + 1


def change_key(change: HistoryChange) -> str:
    """What the address calls a change of a series."""
    return change.after.run.commit[:SHORT_HASH] or change.after.run.key[:SHORT_HASH]


def candidates(filters: Filters, shown: Shown) -> list[Judged]:
    """The changes of all series that pass, or of the one that is shown, the last ones first."""
    courses = [shown.course] if state.get("changes") == "one" else filters.courses
    found = [each for course in courses for each in filters.changes(course)]

    def when(judged: Judged) -> tuple[int, int]:
        after = judged[0].after
        return -(after.run.committed_at or after.run.recorded_at), -after.number

    return sorted(found, key=when)[: MOST_SOUGHT if filters.module else MOST_CHANGES]


def show_changes(place: StorePlace, filters: Filters, shown: Shown) -> None:
    """The table; below it the change that is selected. Causes come while one looks."""
    asked = candidates(filters, shown)
    with st.container(key="changes_head", horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown("**Last changes**", width="content")
        if len(filters.courses) > 1:
            labels = {"": "all series", "one": shown.course.series.label}
            current = "one" if state.get("changes") == "one" else ""
            st.segmented_control(
                "Whose changes",
                list(labels),
                format_func=labels.__getitem__,
                label_visibility="collapsed",
                **bound("changes_widget", current, lambda picked: state.choose(changes=picked or "")),
            )
    if not asked:
        st.caption("Nothing changed.")
        return
    first = shown.course.watched.open_steps[-1:]
    wanted = [*first, *(change for change, _ in asked)]
    missing = any(change_causes.known_cause(change) is None for change in wanted)
    st.fragment(_follow, run_every=EVERY_SECONDS if missing else None)(
        place, filters, shown, asked, wanted, missing
    )  # fmt: skip


def _follow(
    place: StorePlace,
    filters: Filters,
    shown: Shown,
    asked: list[Judged],
    wanted: list[HistoryChange],
    was_missing: bool,
) -> None:
    """The table, and the causes that are `wanted`, the first one for the headline, worked out in parts."""
    rows = _passing(filters, asked)
    _table(filters, shown, rows)
    left = sum(change_causes.known_cause(change) is None for change in dict.fromkeys(wanted))
    if left:
        st.caption(f"Comparing graphs: {left:,} causes are still to be worked out.")
    _selected(place, shown, rows)
    if left:
        # The first time nothing is worked out: the page is there first.
        numbers = [change.after.number for change in wanted]
        if st.session_state.get("history_asked") == numbers:
            began = change_causes.known_cause(wanted[0])
            with errors_shown():
                change_causes.find_causes(place, wanted, WORK_SECONDS)
            if began is None and change_causes.known_cause(wanted[0]):
                state.run_again()
        st.session_state.history_asked = numbers
    elif was_missing:
        state.run_again()


def _passing(filters: Filters, asked: list[Judged]) -> list[Judged]:
    """Those whose cause is known to lie in the module, where one is asked for."""
    if not filters.module:
        return asked
    known = [(each, change_causes.known_cause(each[0])) for each in asked]
    return [each for each, cause in known if cause and cause.lies_in(filters.module)][:MOST_CHANGES]


def _table(filters: Filters, shown: Shown, rows: list[Judged]) -> None:
    if not rows:
        st.caption(plain(f"No cause lies in a module with {filters.module!r} in its path."))
        return
    causes = [change_causes.known_cause(change) for change, _ in rows]
    table = pd.DataFrame(
        {
            "commit": [change.after.run.commit[:SHORT] or change.after.run.label for change, _ in rows],
            "date": [date_of(change.after.run) for change, _ in rows],
            "model": [change.after.series.label for change, _ in rows],
            "Δ arena": [format_signed(change.arena) for change, _ in rows],
            "Δ demand": [format_signed(change.demand) for change, _ in rows],
            "Δ packing": [format_signed(change.arena - change.demand) for change, _ in rows],
            "cause": [cause.short if cause else NOT_YET for cause in causes],
            "line": [cause.line if cause else NOT_YET for cause in causes],
            "state": [f"{MARKS[judged]}{judged}" for _, judged in rows],
        }
    )
    chosen = _chosen(shown, rows)
    numbers: list[int | None] = [change.after.number for change, _ in rows]
    by_number = {change.after.number: change for change, _ in rows}

    def choose(number: int | None) -> None:
        change = by_number.get(number) if number is not None else None
        if change is None:
            state.choose(commit="")
        else:
            state.choose(series=series_key(change.after.series), commit=change_key(change))

    right = {
        name: st.column_config.TextColumn(alignment="right", width=85)
        for name in ("Δ arena", "Δ demand", "Δ packing")
    }
    widths = {"commit": 80, "date": 90, "model": 140, "cause": 360, "line": 170, "state": 110}
    wide = {name: st.column_config.TextColumn(width=width) for name, width in widths.items()}
    selected = None if chosen is None else chosen[0].after.number
    selectable(table, numbers, selected, "history_changes", "rows", choose, {**right, **wide})


def _chosen(shown: Shown, rows: list[Judged]) -> Judged | None:
    """The change of the address; else the last of the series that is to be looked at, or its last."""
    own = [each for each in rows if each[0].after.series == shown.course.series]
    asked = state.get("commit")
    if asked:
        return next((each for each in own if change_key(each[0]) == asked), None)
    alarms = [each for each in own if each[1] is ChangeState.TO_LOOK_AT]
    return next(iter(alarms or own), None)


def _selected(place: StorePlace, shown: Shown, rows: list[Judged]) -> None:
    """The change that is selected, in sentences, and what can be done about it."""
    chosen = _chosen(shown, rows)
    if chosen is None:
        st.caption("Select a change: its cause, Diff, Acknowledge and Bisect are shown here.")
        return
    change, judged = chosen
    run, cause = change.after.run, change_causes.known_cause(change)
    with st.container(border=True, key="selected_change"):
        head = f"{change.after.series.label}, {run.label} of {date_of(run)}: {arena_words(change)}"
        st.markdown(f"**{plain(head)}** :gray[{plain(judged)}]")
        told = [change_words(change), *(cause.sentences if cause else ("the cause is being worked out",))]
        told += filter(None, [gap_sentence(change), meant_sentence(change, shown.course.watched.meant)])
        st.markdown("\n".join(f"- {plain(each[0].upper() + each[1:])}" for each in dict.fromkeys(told)))
        if cause and cause.code:
            st.caption(plain(f"{cause.line}: {cause.code}"))
        with st.container(horizontal=True, gap="small", key="change_actions"):
            if st.button("Diff", icon=":material/difference:", key="history_diff", type="primary"):
                open_diff(place, change)
            _acknowledge(place, change, judged)
            show_bisect(place, change)


def _acknowledge(place: StorePlace, change: HistoryChange, judged: ChangeState) -> None:
    commit = change.after.run.commit
    why_not = place.why_not_written or ("" if commit else "it belongs to no commit")
    if judged is ChangeState.ACKNOWLEDGED:
        why_not = why_not or "it is acknowledged already"
    if why_not:
        st.button(
            "Acknowledge",
            icon=":material/check:",
            disabled=True,
            key="ack_not",
            help=plain(f"Not here: {why_not}."),
        )
        return
    with st.popover("Acknowledge", icon=":material/check:"):
        st.caption("Growth is measured from this change on. Others see who says so, and why.")
        with st.form("ack_form", border=False, clear_on_submit=True):
            reason = st.text_input(
                "Why is it meant?", placeholder="a wider head, measured to pay off", max_chars=500
            )
            author = st.text_input("Your name", max_chars=100)
            if st.form_submit_button("Acknowledge", type="primary"):
                _write(place, change, reason.strip(), author.strip())
        series = change.after.series
        words = ["memplan", "history", "ack", commit[:SHORT_HASH], series.model, "-m", "…"]
        st.code(shlex.join(words), language=None)


def _write(place: StorePlace, change: HistoryChange, reason: str, author: str) -> None:
    if not reason:
        show_error("reason: found nothing, expected why the change is meant")
        return
    with errors_shown():
        with stores.opened(place, to_write=True) as history:
            acknowledge_commit(history, [change.after.series], change.after.run.commit, reason, author)
        stores.forget(place)
        st.rerun()
