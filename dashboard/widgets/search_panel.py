"""The panel of a search that goes on in the background: its course, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from memplan_dashboard.background.jobs import JobSnapshot, State
from memplan_dashboard.charts import arena_over_time
from memplan_dashboard.session import searches, state
from memplan_dashboard.session.messages import plain, show_error
from memplan_dashboard.session.searches import LIMITS, Search
from memplan_dashboard.widgets.controls import bound

from memplan_engine import Decision
from memplan_engine.analysis.claims import doubt, optimal_for
from memplan_engine.units import format_bytes, format_percent
from memplan_engine.verdict import Reason, Verdict, verdict_text

EVERY_SECONDS = 1.0
LIMIT = "Then the search is paused. Keep solving goes on from there."


def show_search(search: Search, side: str = "", beside: Sequence[Search] = ()) -> None:
    """The panel, looked at anew every second while the search goes on. On a page with several searches
    `side` says which one it is, and `beside` has the others."""
    active = search.job.snapshot().state.is_active
    # A search that ends outside a page's own doing (limit, proof) shows its plan when the panel sees it.
    st.fragment(_panel, run_every=EVERY_SECONDS if active else None)(search, active, side, tuple(beside))


def settle(search: Search) -> None:
    """Before the chart is drawn: when the search has stopped, show what it has found."""
    if not search.job.snapshot().state.is_active and search.has_better:
        search.show_best()


def _panel(search: Search, was_active: bool, side: str, beside: tuple[Search, ...]) -> None:
    """One row, so that it pushes nothing out of sight; a browser draws the course, and loads what draws it,
    when somebody opens it."""
    snapshot = search.job.snapshot()
    if was_active and not snapshot.state.is_active:
        state.run_again()
    proved = snapshot.now.arena_bytes == snapshot.now.bound_bytes
    headline = plain(f"{side}: " * bool(side) + _headline(search, snapshot))
    row = st.container(
        border=True, key=f"search{side}", horizontal=True, vertical_alignment="center", gap="small"
    )
    with row:
        st.markdown(f"**{headline}** · {plain(' · '.join(_figures(snapshot)))}", width="stretch")
        if not proved:
            _buttons(search, snapshot, side, beside)
        with st.popover("Progress", icon=":material/monitoring:", type="tertiary"):
            until = snapshot.until if snapshot.state.is_active else snapshot.seconds
            chart = arena_over_time.figure(arena_over_time.data(snapshot.history, until))
            st.plotly_chart(chart, key=f"arena_over_time{side}", config={"displayModeBar": False})
            if not proved:
                _limit(search, side, beside)
    if snapshot.fault:
        show_error(snapshot.fault)


def _headline(search: Search, snapshot: JobSnapshot) -> str:
    spent = format_seconds(snapshot.seconds)
    if snapshot.now.arena_bytes == snapshot.now.bound_bytes:
        problem = search.document.problem
        if doubt(problem) in (Reason.PARTIAL, Reason.COMPILED):
            return f"No arena for {optimal_for(problem)} can be smaller, proved after {spent}"
        return f"Proved optimal for {optimal_for(problem)} after {spent}"
    capacity = search.job.capacity
    size = "" if capacity is None else f" for {format_bytes(capacity)}"
    if snapshot.state is State.RUNNING:
        return f"Searching{size}: {spent} of {format_seconds(snapshot.until)}"
    if capacity is not None and search.verdict is not Verdict.UNDECIDED:
        decision = Decision(capacity, search.job.best)
        words = verdict_text(decision.verdict, decision.reason, capacity=format_bytes(capacity))
        how = "proved" if decision.verdict is Verdict.DOES_NOT_FIT else "found"
        return f"{words[:1].upper()}{words[1:]}, {how} after {spent}"
    if snapshot.state is State.WAITING:
        if searches.scheduler().waits_for_its_own(search.job):
            return "Starts when the other side's search ends"
        return f"Waiting for its turn: {searches.turn_text(searches.scheduler(), search.job)}"
    says = {State.SUSPENDED: "Paused", State.CANCELLED: "Cancelled", State.FAILED: "Ended early"}
    return f"{says.get(snapshot.state, 'Ended')} after {spent}, optimality not proved"


def _figures(snapshot: JobSnapshot) -> list[str]:
    now = snapshot.now
    told = [f"best {format_bytes(now.arena_bytes or 0)}", f"bound {format_bytes(now.bound_bytes or 0)}"]
    if now.gap:
        told.append(f"{format_percent(now.gap)} over bound")
    if snapshot.nodes_per_second and snapshot.state is State.RUNNING:
        told.append(f"{format_count(snapshot.nodes_per_second)} nodes/s")
    return told


def _limit(search: Search, side: str, beside: tuple[Search, ...]) -> None:
    def take(limit: str) -> None:
        state.choose(limit=limit)
        for each in (search, *beside):
            each.job.allow(searches.limit_seconds())

    st.radio(
        "Time limit",
        list(LIMITS),
        format_func=LIMITS.__getitem__,
        horizontal=True,
        help=LIMIT,
        **bound(f"limit_widget{side}", f"{searches.limit_seconds():g}", take),
    )


def _buttons(search: Search, snapshot: JobSnapshot, side: str, beside: tuple[Search, ...]) -> None:
    if snapshot.state.is_active:
        better = snapshot.now.arena_bytes != search.shown.plan.arena_bytes
        if st.button(
            "Show the best so far",
            icon=":material/update:",
            key=f"search_show{side}",
            disabled=not better,
        ):
            search.show_best()
            st.rerun()
        if st.button("Cancel", icon=":material/stop_circle:", key=f"search_cancel{side}"):
            search.job.cancel()
            st.rerun()
    elif st.button("Keep solving", icon=":material/play_circle:", key=f"search_on{side}"):
        searches.keep_on(search, beside)
        st.rerun()


def format_seconds(seconds: float) -> str:
    """ "9 s", "61 s", "10 min"."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def format_count(number: float) -> str:
    """ "950", "12.3 k", "4.56 M"."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"
