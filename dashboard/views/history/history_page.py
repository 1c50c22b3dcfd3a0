"""History: what a model's memory did over the commits, which changes are to be looked at, and why."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session import change_causes
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.session.stores import StorePlace
from memplan_dashboard.views.history.bisect_panel import show_bisection
from memplan_dashboard.views.history.change_table import show_changes
from memplan_dashboard.views.history.history_chart import DARK, LIGHT, figure, places
from memplan_dashboard.views.history.history_choices import (
    Shown,
    choose_series,
    open_diff,
    pick_filters,
    pick_store,
    show_upload,
)
from memplan_dashboard.views.history.series_cards import show_cards

from memplan_engine.history.alarms import ChangeState, Watched
from memplan_engine.history.history_values import SHORT_HASH
from memplan_engine.reporters.history.change_words import (
    change_words,
    growth_sentence,
    left_words,
    level_words,
    limit_words,
)
from memplan_engine.units import count_of, exact

STILL = {"displayModeBar": False}
NOTHING = (
    "No store of history is open. `memplan history record package.module:factory` begins one in this "
    "repository; `memplan dashboard history.db` opens one; or open an export below."
)


def _headline(watched: Watched) -> None:
    """What the series needs, and since which commit; the cause of the last step to look at."""
    told = growth_sentence(watched)
    cause = ""
    if watched.open_steps:
        step = watched.open_steps[-1]
        if known := change_causes.known_cause(step):
            commit = step.after.run.commit[: SHORT_HASH // 2 + 1] or step.after.run.label
            cause = f" :gray[{plain(f'{commit}: {known.short}')}]"
    with st.container(key="headline"):
        st.subheader(f"{plain(told)}{cause}", anchor=False)


def _chips(watched: Watched) -> None:
    with st.container(key="figures", horizontal=True, vertical_alignment="center", gap="small"):
        icon = ":material/close:" if watched.alarming else ":material/info:"
        st.badge(plain(limit_words(watched)), icon=icon, color="red" if watched.alarming else "blue")
        if watched.growth.bytes_differ:
            st.badge(plain(change_words(watched.growth)), color="blue")
        st.badge(plain(exact(watched.latest.figures.arena)), color="gray", help="The arena, exactly")
        st.badge(
            plain(f"measured from {level_words(watched.level)}"),
            color="gray",
            help="The last change that was acknowledged, else the first commit",
        )
        if meant := sum(state is ChangeState.ACKNOWLEDGED for _, state in watched.changes):
            st.badge(plain(f"{count_of(meant, 'change')} acknowledged"), color="gray")
        if left := watched.left:
            st.badge(
                f"{count_of(len(left), 'commit')} left out", color="gray", help=plain(left_words(watched))
            )


def _chart(place: StorePlace, shown: Shown) -> None:
    course, runs = shown.course, shown.columns.runs
    series, latest = course.series, course.watched.latest
    where = f" on {latest.run.branch}" if latest.run.branch else ""
    count = count_of(len(course) - shown.begin, "commit")
    with st.container(key="history_head"):
        st.markdown(f"**{plain(series.label)}** :gray[{plain(f'{count}{where}, {series.strategy}')}]")
    causes = {
        change.after.number: cause.short
        for change, _ in course.watched.changes
        if (cause := change_causes.known_cause(change))
    }
    look = DARK if st.context.theme.type == "dark" else LIGHT
    chart = figure(course, runs, look, causes, shown.begin)
    # A mark that was clicked before is clicked anew.
    key = f"history_chart_{st.session_state.get('history_clicks', 0)}"

    def clicked() -> None:
        points = st.session_state[key].selection.points
        st.session_state.history_clicks = st.session_state.get("history_clicks", 0) + 1
        st.session_state.history_clicked = points[0]["x"] if points else None

    st.plotly_chart(chart, key=key, config=STILL, on_select=clicked, selection_mode="points")
    st.caption(
        "A click on a change opens both graphs on the page Diff. Dotted: what is allowed since the last "
        "change that was acknowledged."
    )
    at, place_of = st.session_state.pop("history_clicked", None), places(course, runs)
    for change, _ in course.watched.changes:
        if at is not None and place_of.get(change.after.run.commit) == at:
            open_diff(place, change)


def _page() -> None:
    place = pick_store()
    if place is None:
        st.info(NOTHING, icon=":material/info:")
        return
    filters = pick_filters(place)
    if filters is None:
        return
    shown = choose_series(filters)
    _headline(shown.course.watched)
    _chips(shown.course.watched)
    show_cards(filters, shown)
    _chart(place, shown)
    show_changes(place, filters, shown)
    show_bisection(place)


with errors_shown():
    _page()
show_upload()
