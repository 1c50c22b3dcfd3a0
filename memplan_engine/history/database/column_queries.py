"""Points by columns: a row an object takes a hundred times as long as a number in an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, String, cast, func, select

from memplan_engine.history.commit_order import commit_places, node_of
from memplan_engine.history.database.row_values import POINTS, RUNS, series_by_number
from memplan_engine.history.history_values import HistorySeries
from memplan_engine.history.point_columns import UNKNOWN, HistoryColumns, PointColumns, RunColumns

_RUN = ("number", "key", "project", "commit", "parent", "branch", "dirty", "committed_at", "recorded_at")


def read_columns(
    connection: Connection, wanted: set[HistorySeries] | None, figures: Sequence[str]
) -> HistoryColumns:
    """Do what `History.columns` says, within the transaction of `connection`."""
    runs = _runs(connection)
    series = series_by_number(connection)
    if wanted is not None:
        series = {number: each for number, each in series.items() if each in wanted}
    # The database hands out a column of a series as one text: a row would be a tuple of objects.
    columns = [POINTS.c.run, POINTS.c.number, *(func.coalesce(POINTS.c[name], UNKNOWN) for name in figures)]
    texts = [func.aggregate_strings(cast(column, String), ",") for column in columns]
    asked = select(POINTS.c.series, *texts).group_by(POINTS.c.series)
    if wanted is not None:
        asked = asked.where(POINTS.c.series.in_(series))
    order = np.argsort(runs.number)
    points = {}
    for number, *column in connection.execute(asked):
        run, ids, *sizes = (np.fromstring(text, np.int64, sep=",") for text in column)
        place = order[np.searchsorted(runs.number, run, sorter=order)]
        ascending = np.argsort(place, kind="stable")
        named = dict(zip(figures, (each[ascending] for each in sizes), strict=True))
        points[number] = PointColumns(place[ascending], ids[ascending], named)
    return HistoryColumns(runs, {each: points[number] for number, each in series.items() if number in points})


def _runs(connection: Connection) -> RunColumns:
    """All runs in the order of commits."""
    rows = connection.execute(select(*(RUNS.c[name] for name in _RUN)).order_by(RUNS.c.number)).all()
    nodes = [node_of(row.commit, row.key) for row in rows]
    told = ((node, row.commit, row.parent, row.committed_at or row.recorded_at)
            for node, row in zip(nodes, rows, strict=True))  # fmt: skip
    places = commit_places(told)
    ordered: list[Any] = [
        row
        for _, row in sorted(
            zip(nodes, rows, strict=True),
            key=lambda pair: (places[pair[0]], bool(pair[1].dirty), pair[1].number),
        )
    ]
    return RunColumns(
        np.array([row.number for row in ordered], np.int64),
        tuple(row.project for row in ordered),
        tuple(row.commit for row in ordered),
        tuple(row.parent for row in ordered),
        tuple(row.branch for row in ordered),
        np.array([row.dirty for row in ordered], bool),
        np.array([row.committed_at for row in ordered], np.int64),
        np.array([row.recorded_at for row in ordered], np.int64),
    )
