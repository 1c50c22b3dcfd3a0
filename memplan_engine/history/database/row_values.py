"""Between values and rows of the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Select, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES
from memplan_engine.history.database.connecting import is_sqlite
from memplan_engine.history.database.history_tables import (
    AcknowledgementRow,
    Base,
    GraphRow,
    PointRow,
    RunRow,
    SeriesRow,
)
from memplan_engine.history.history_values import (
    Acknowledgement,
    Fingerprints,
    HistoryFigures,
    HistoryPoint,
    HistoryRun,
    HistorySeries,
    Pairs,
)


def table_of(row: type[Base]) -> Table:
    """The table behind `row`."""
    table = row.__table__
    assert isinstance(table, Table)
    return table


RUNS, SERIES, GRAPHS = table_of(RunRow), table_of(SeriesRow), table_of(GraphRow)
POINTS, ACKNOWLEDGEMENTS = table_of(PointRow), table_of(AcknowledgementRow)
_FIGURES = tuple(each.name for each in fields(HistoryFigures))
POINT_COLUMNS = [
    POINTS.c[name]
    for name in ("number", "run", "series", *_FIGURES, "graph", "structure", "problem", "plan", "nodes",
                 "cut_short")
]  # fmt: skip
"""In the order in which `point_from` takes them."""
_FIRST, _LAST = 3, 3 + len(_FIGURES)


def insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
    """Insert those of `rows` that no unique column speaks against; how many those are."""
    insert: Any = sqlite.insert if is_sqlite(connection) else postgresql.insert
    done = 0
    for row in rows:
        # What comes back is counted: a driver need not know how many rows it was.
        new = insert(table).values(**row).on_conflict_do_nothing().returning(*table.primary_key.columns)
        done += len(connection.execute(new).all())
    return done


def run_row(run: HistoryRun) -> dict[str, Any]:
    """The columns of `run`."""
    return {each.name: getattr(run, each.name) for each in fields(run)} | {"versions": _json(run.versions)}


def series_row(series: HistorySeries) -> dict[str, Any]:
    """The columns of `series`."""
    row = {each.name: getattr(series, each.name) for each in fields(series)}
    return row | {"digest": series.digest, "options": _json(series.options)}


def point_row(
    figures: HistoryFigures, fingerprints: Fingerprints, nodes: int, cut_short: bool
) -> dict[str, Any]:
    """The columns of a point but for its run and its series."""
    row = {name: getattr(figures, name) for name in _FIGURES}
    row |= {each.name: getattr(fingerprints, each.name) for each in fields(fingerprints)}
    return row | {"graph": fingerprints.graph or None, "nodes": nodes, "cut_short": cut_short}


def runs_by_number(connection: Connection, wanted: Select[Any] | None = None) -> dict[int, HistoryRun]:
    """All runs, or those of `wanted`, in the order in which they came."""
    columns = [RUNS.c.number, *(RUNS.c[each.name] for each in fields(HistoryRun))]
    asked = (select(RUNS) if wanted is None else wanted).with_only_columns(*columns).order_by(RUNS.c.number)
    found = {}
    for number, *values in connection.execute(asked):
        row = dict(zip((each.name for each in fields(HistoryRun)), values, strict=True))
        found[number] = HistoryRun(**row | {"versions": _pairs(row["versions"]), "dirty": bool(row["dirty"])})
    return found


def series_by_number(connection: Connection, wanted: Select[Any] | None = None) -> dict[int, HistorySeries]:
    """All series, or those of `wanted`, in the order in which they came."""
    columns = [SERIES.c.number, *(SERIES.c[each.name] for each in fields(HistorySeries))]
    asked = (select(SERIES) if wanted is None else wanted).with_only_columns(*columns)
    rows = connection.execute(asked.order_by(SERIES.c.number))
    return {
        number: HistorySeries(project, model, variant, strategy, _pairs(options))
        for number, project, model, variant, strategy, options in rows
    }


def point_from(
    row: Sequence[Any], runs: Mapping[int, HistoryRun], series: Mapping[int, HistorySeries]
) -> HistoryPoint:
    """The point of a row of POINT_COLUMNS."""
    graph, structure, problem, plan, nodes, cut_short = row[_LAST:]
    return HistoryPoint(
        row[0],
        runs[row[1]],
        series[row[2]],
        HistoryFigures(*row[_FIRST:_LAST]),
        Fingerprints(graph or "", structure, problem, plan),
        nodes,
        bool(cut_short),
    )


def acknowledgements_from(
    connection: Connection, series: Mapping[int, HistorySeries]
) -> list[Acknowledgement]:
    """Those in `series`, in the order in which they came."""
    table = ACKNOWLEDGEMENTS
    columns = (table.c.series, table.c.commit, table.c.reason, table.c.author, table.c.acknowledged_at)
    rows = connection.execute(select(*columns).order_by(table.c.number))
    return [Acknowledgement(series[number], *row) for number, *row in rows if number in series]


def check_row(row: Mapping[str, Any], name: str) -> None:
    """Raise InputError for what no database keeps: letters that are none, NUL, numbers beyond 64 bits."""
    for key, value in row.items():
        if isinstance(value, str):
            if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
                raise InputError(name, key, "letters that are no valid text", "text in Unicode without NUL")
        elif isinstance(value, int) and not 0 <= value <= MAX_BYTES:
            raise InputError(name, key, str(value), "0 to 2^63-1")


def same_point(first: HistoryPoint, row: Mapping[str, Any]) -> bool:
    """Whether `row` says what `first` says, run and series apart."""
    mine = point_row(first.figures, first.fingerprints, first.nodes, first.cut_short)
    return all(mine[key] == row[key] for key in mine)


def _json(values: Pairs) -> str:
    return json.dumps(values, ensure_ascii=True, separators=(",", ":"))


def _pairs(text: str) -> Pairs:
    return tuple((str(name), str(value)) for name, value in json.loads(text))
