"""The series of a store, small: what each needs, its course, and its last change."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import streamlit as st
from memplan_dashboard.charts.markup import picture
from memplan_dashboard.session import state
from memplan_dashboard.session.messages import plain
from memplan_dashboard.views.history.history_chart import small
from memplan_dashboard.views.history.history_choices import (
    Filters,
    Shown,
    in_order_of_need,
    series_key,
)
from memplan_dashboard.widgets.tables import MOST_ROWS, selectable, whole

from memplan_engine.history.alarms import Watched
from memplan_engine.history.courses import Course
from memplan_engine.reporters.history.change_words import date_of
from memplan_engine.units import format_bytes, format_signed

MOST_CARDS = 6
MOST_POINTS = 60
"""Of a line in the table."""
Colour = Literal["red", "green", "gray"]
LINES: dict[Colour, str] = {"red": "#C4164F", "green": "#228833", "gray": "#8A8F98"}


def last_change(watched: Watched, since: int) -> tuple[str, Colour]:
    """By how many bytes the arena changed last, and whether that is good."""
    for change, _ in reversed(watched.changes):
        if (change.after.run.committed_at or change.after.run.recorded_at) < since:
            break
        if change.arena:
            grew: Colour = "red" if change.arena > 0 and watched.alarming else "gray"
            return format_signed(change.arena), "green" if change.arena < 0 else grew
    return "no change", "gray"


def show_cards(filters: Filters, shown: Shown) -> None:
    """A card for each of the series that ask most for attention, and a table of all where there are more."""
    ordered = in_order_of_need(filters.courses)
    if len(ordered) == 1:
        return
    first = ordered[:MOST_CARDS]
    if shown.course not in first:
        first = [shown.course, *first[:-1]]
    columns = st.container(key="series_cards").columns(len(first), gap="small")
    for place, (column, course) in enumerate(zip(columns, first, strict=True)):
        chosen = "chosen" if course is shown.course else "other"
        with column.container(border=True, key=f"seriescard_{chosen}_{place}"):
            _card(filters, course)
    if len(ordered) > len(first):
        with st.expander(f"All {len(ordered):,} series"):
            _table(filters, ordered, shown)


def _card(filters: Filters, course: Course) -> None:
    series, watched = course.series, course.watched
    variant = f" :gray[{plain(series.variant)}]" if series.variant else ""
    if st.button(f"**{plain(series.model)}**{variant}", key=f"series_{series_key(series)}", type="tertiary"):
        state.choose(series=series_key(series), commit="")
        st.rerun()
    delta, colour = last_change(watched, filters.since)
    begin = filters.begin(course)
    told = f"{series.label}: the arena over {len(course) - begin:,} commits"
    st.html(picture(small(course.arena[begin:], LINES[colour]), told))
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**{plain(format_bytes(watched.latest.figures.arena))}**", width="content")
        st.badge(plain(delta), color=colour)


def _table(filters: Filters, ordered: list[Course], shown: Shown) -> None:
    several = ordered[:MOST_ROWS]
    rows = pd.DataFrame(
        {
            "model": [each.series.label for each in several],
            "project": [each.series.project for each in several],
            "course": [_thinned(each.arena[filters.begin(each) :]) for each in several],
            "arena": [each.watched.latest.figures.arena for each in several],
            "last change": [last_change(each.watched, filters.since)[0] for each in several],
            "of": [date_of(each.watched.latest.run) for each in several],
        }
    )
    numbers = list(range(len(several)))
    place = next(number for number in numbers if several[number] is shown.course)

    def choose(number: int | None) -> None:
        state.choose(series="" if number is None else series_key(several[number].series), commit="")

    columns = {**whole("arena"), "course": st.column_config.LineChartColumn(width="medium")}
    selectable(rows, numbers, place, "all_series", str(len(several)), choose, columns)


def _thinned(values: np.ndarray) -> list[int]:
    starts = np.unique(
        np.linspace(0, len(values), min(MOST_POINTS, len(values)), endpoint=False).astype(np.int64)
    )
    return [int(most) for most in np.maximum.reduceat(values, starts)]
