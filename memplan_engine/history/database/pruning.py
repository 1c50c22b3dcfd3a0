"""What a store need not keep: points between two that say the same."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, text

from memplan_engine.history.changes import to_keep
from memplan_engine.history.database.connecting import is_sqlite
from memplan_engine.history.database.row_values import (
    GRAPHS,
    POINT_COLUMNS,
    POINTS,
    RUNS,
    acknowledgements_from,
    point_from,
    runs_by_number,
    series_by_number,
)

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many `points` were removed, and how many `graphs` that no point names any more."""

    points: int
    graphs: int


def prune_points(connection: Connection, newest: int, before: int | None) -> Pruned:
    """Do what `History.prune` says, within the transaction of `connection`."""
    alone(connection)
    runs, series = runs_by_number(connection), series_by_number(connection)
    acknowledged = acknowledgements_from(connection, series)
    done = 0
    for number, each in series.items():
        rows = connection.execute(select(*POINT_COLUMNS).where(POINTS.c.series == number))
        points = [point_from(row, runs, series) for row in rows]
        commits = {said.commit for said in acknowledged if said.series == each}
        own = [run for run in runs.values() if run.project == each.project]
        kept = to_keep(points, own, commits, newest, before)
        gone = sorted({point.number for point in points} - kept)
        for begin in range(0, len(gone), _BATCH):
            some = gone[begin : begin + _BATCH]
            done += connection.execute(POINTS.delete().where(POINTS.c.number.in_(some))).rowcount
    named = select(POINTS.c.graph).where(POINTS.c.graph == GRAPHS.c.digest).exists()
    return Pruned(done, connection.execute(GRAPHS.delete().where(~named)).rowcount)


def alone(connection: Connection) -> None:
    """Have no other writer in until the transaction ends: each of them begins with a run."""
    if not is_sqlite(connection):
        connection.execute(text(f"LOCK TABLE {RUNS.name} IN SHARE ROW EXCLUSIVE MODE"))
