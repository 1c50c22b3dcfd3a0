"""What the page History shows of which store: the choices, and what passes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st
from memplan_dashboard.session import change_causes, folder, state, stores, uploads
from memplan_dashboard.session.messages import errors_shown, show_error, show_note
from memplan_dashboard.session.stores import StorePlace
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.controls import chooses

from memplan_engine import MemplanError
from memplan_engine.diffing.regression import Limit, parse_limit
from memplan_engine.history.alarms import NO_GROWTH, ChangeState
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.courses import Course, usual_branch
from memplan_engine.history.history_values import SHORT_HASH, HistorySeries
from memplan_engine.history.point_columns import HistoryColumns

Judged = tuple[HistoryChange, ChangeState]
DAY = 86_400
SINCE = {"": "all commits", "7": "7 days", "30": "30 days", "90": "90 days", "365": "a year"}
"""Days before the last commit, as the address has them, and as people read them."""
EVERY = "all"


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """What passes the choices of the page: the `courses` of the series that are shown, and `since` when, in
    seconds since 1970, 0 for all; and part of the path of a `module` in which causes have to lie."""

    columns: HistoryColumns
    courses: tuple[Course, ...]
    since: int
    module: str

    def begin(self, course: Course) -> int:
        """The place of its first point that is shown; the last one always is."""
        runs = self.columns.runs
        when = np.where(runs.committed_at > 0, runs.committed_at, runs.recorded_at)[course.run]
        late = np.flatnonzero(when >= self.since)
        return int(late[0]) if len(late) else len(course) - 1

    def changes(self, course: Course) -> list[Judged]:
        """Its changes since then, in the order of commits."""
        return [
            (change, judged)
            for change, judged in course.watched.changes
            if (change.after.run.committed_at or change.after.run.recorded_at) >= self.since
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The `course` that the chart shows, from the point at `begin` on."""

    columns: HistoryColumns
    course: Course
    begin: int


def pick_store() -> StorePlace | None:
    """The store that is chosen; None where there is none."""
    known = stores.catalogue()
    key = state.get("history") or next(iter(known), "")
    if not key:
        return None
    if len(known) > 1 or key not in known or folder.root() is not None:
        columns = st.container(key="halves_store").columns([2, 2, 3], gap="small")
        with columns[0]:
            controls.pick_key("Store", known, key, "history_widget", _open)
        if folder.root() is not None:
            with columns[1]:
                _pick_path(key)
    else:
        st.session_state.history_widget = key
    return stores.place_of(key)


def _pick_path(key: str) -> None:
    kind, _, name = key.partition(":")
    st.text_input(
        "Path below the folder",
        placeholder="runs/history.db",
        help="A store below the folder that the dashboard was started with.",
        **controls.bound(
            "history_path",
            name if kind == folder.KIND else "",
            lambda text: _open(f"{folder.KIND}:{text}" * bool(text)),
        ),
    )


def _open(key: str) -> None:
    empty = dict.fromkeys(("project", "model", "module", "branch", "series", "commit"), "")
    state.choose(history=key, **empty)


def pick_filters(place: StorePlace) -> Filters | None:
    """What passes the choices; None, with a word, where nothing does."""
    columns = stores.read_columns(place)
    if not columns.points:
        st.info(
            "Nothing is recorded in this store yet: `memplan history record` does.", icon=":material/info:"
        )
        return None
    row = controls.row([1, 1.3, 1, 0.9, 1.3, 0.9])
    with row[0]:
        project = _pick("Project", "project", sorted({each.project for each in columns.points}))
    of_project = [each for each in columns.points if project in ("", each.project)]
    with row[1]:
        model = _pick("Model", "model", sorted({each.model for each in of_project}))
    with row[2]:
        branch = _pick_branch(columns)
    with row[3]:
        chosen = state.get("since") if state.get("since") in SINCE else ""
        told = "Counted back from the last commit of the store."
        st.selectbox(
            "Since", list(SINCE), format_func=SINCE.__getitem__, help=told, **chooses("since", chosen)
        )
    with row[4]:
        st.text_input(
            "Module",
            placeholder="decoder.layers",
            help="Only changes that come from tensors of a module whose path has this in it.",
            max_chars=200,
            **chooses("module", state.get("module")),
        )
    with row[5]:
        limit = _pick_limit()
    asked = [each for each in of_project if model in ("", each.model)]
    wanted = set(asked)
    found = tuple(each for each in stores.read_courses(place, branch, limit) if each.series in wanted)
    if not found:
        st.info("No series passes these choices.", icon=":material/info:")
        return None
    runs = columns.runs
    newest = int(max(runs.committed_at.max(initial=0), 0)) or int(runs.recorded_at.max(initial=0))
    since = newest - int(chosen) * DAY if chosen else 0
    return Filters(columns, found, since, state.get("module").strip())


def _pick(label: str, name: str, known: Sequence[str]) -> str:
    """One of `known`, "" for all."""
    chosen = state.get(name)
    options = ["", *known]
    if chosen not in options:
        show_error(f"{name}: found {chosen[:40]!r}, expected one of those in the list")
        chosen = ""
    st.selectbox(label, options, format_func=lambda each: each or EVERY, **chooses(name, chosen))
    return chosen


def _pick_branch(columns: HistoryColumns) -> str:
    runs = columns.runs
    usual = usual_branch(columns)
    named = dict.fromkeys([usual, *sorted(name for name in set(runs.branch) if name), ""])
    known = [name for name in named if name in set(runs.branch)]
    asked = state.get("branch")
    if asked and asked not in known:
        show_error(f"branch: found {asked[:40]!r}, expected one of those in the list")
        asked = ""
    chosen = asked or usual
    st.selectbox(
        "Branch",
        known,
        format_func=lambda name: name or "no branch",
        **chooses("branch", chosen, text=lambda name: "" if name == usual else name),
    )
    return chosen


def _pick_limit() -> Limit:
    """By how much a series may grow before somebody has to look."""
    text = state.get("growth")
    st.text_input(
        "Growth allowed",
        placeholder="none",
        help="5%, 10MiB or bytes, since the last change that was acknowledged.",
        max_chars=40,
        **chooses("growth", text),
    )
    if not text.strip():
        return NO_GROWTH
    try:
        return parse_limit(text, "growth")
    except MemplanError as error:
        show_error(error)
        return NO_GROWTH


def series_key(series: HistorySeries) -> str:
    """What the address calls a series."""
    return series.digest[:SHORT_HASH]


def choose_series(filters: Filters) -> Shown:
    """The series of the address; else the one that asks most for attention: over its limit, by the most."""
    by_key = {series_key(each.series): each for each in filters.courses}
    asked = state.get("series")
    course = by_key.get(asked) or in_order_of_need(filters.courses)[0]
    show_note(
        "series: the one that the address asks for is not among those shown"
        if asked and asked not in by_key
        else ""
    )
    return Shown(filters.columns, course, filters.begin(course))


def in_order_of_need(several: Sequence[Course]) -> list[Course]:
    """Those over their limits first, the one that grew most before others; then by their last change."""

    def key(course: Course) -> tuple[bool, int, int]:
        watched = course.watched
        latest = max((change.after.number for change, _ in watched.changes), default=0)
        return not watched.alarming, -watched.growth.arena * watched.alarming, -latest

    return sorted(several, key=key)


def open_diff(place: StorePlace, change: HistoryChange) -> None:
    """Go to the page Diff with both graphs; say why not where that cannot be."""
    with errors_shown():
        state.lead_on("views/diff/diff_page.py", **change_causes.diff_choices(place, change))


def show_upload() -> None:
    """What opens an export."""
    with st.expander("Open an export of another store", icon=":material/upload_file:"):
        st.caption(
            "`History.export` or a copy of `.memplan/history.db`: one file of SQLite. It is read and never "
            "written to, and nothing in it is run."
        )
        uploaded = st.file_uploader("A store of history", key="history_uploader", help=uploads.RULES)
        if uploaded is None or uploaded.file_id == st.session_state.get("history_uploaded"):
            return
        try:
            content = stores.without_log(uploaded.getvalue())
            key = uploads.keep_readable(uploaded.name, content, stores.check_store, stores.KIND)
        except MemplanError as error:
            show_error(error)
            return
        st.session_state.history_uploaded = uploaded.file_id
        _open(key)
        st.rerun()
