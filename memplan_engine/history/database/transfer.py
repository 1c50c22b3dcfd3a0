"""Everything that a store has, copied into another: a file to be carried away, or one that was."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from memplan_engine.errors import InputError
from memplan_engine.history.database.connecting import (
    WAIT_SECONDS,
    connect_to,
    find_location,
    for_writing,
)
from memplan_engine.history.database.failures import explained
from memplan_engine.history.database.migrating import migrate
from memplan_engine.history.database.pruning import alone
from memplan_engine.history.database.row_values import (
    ACKNOWLEDGEMENTS,
    GRAPHS,
    POINT_COLUMNS,
    POINTS,
    RUNS,
    SERIES,
    acknowledgements_from,
    check_row,
    insert_new,
    point_from,
    point_row,
    run_row,
    runs_by_number,
    same_point,
    series_by_number,
    series_row,
)
from memplan_engine.history.graph_blobs import restored
from memplan_engine.system import DRAFT_LETTERS, write_target


@dataclass(frozen=True, slots=True)
class Imported:
    """How many runs, points, graphs and acknowledgements were new."""

    runs: int
    points: int
    graphs: int
    acknowledgements: int


def export_store(source: Connection, name: str, path: Path | str) -> None:
    """Do what `History.export` says with the store `name`, which `source` reads."""
    target = write_target(path)
    with contextlib.suppress(OSError):
        if target.samefile(name):
            raise InputError(str(path), "", "the store itself as the file to write", "another name")
    if target.with_name(target.name + "-wal").exists():
        # What SQLite finds beside a file it takes for the file's own.
        raise InputError(str(path), "", "a store that somebody has open", "another name")
    draft = target.with_name(f".{target.name[:DRAFT_LETTERS]}.{secrets.token_hex(8)}.part")
    try:
        engine = connect_to(find_location(draft), False, WAIT_SECONDS)
        migrate(engine, str(path))
        with explained(str(path)):
            with for_writing(engine).begin() as connection:
                copy_all(source, name, connection, str(path))
            engine.dispose()
            _settle(draft)
        draft.replace(target)
    finally:
        for leftover in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm"))):
            with contextlib.suppress(OSError):
                leftover.unlink(missing_ok=True)


def _settle(draft: Path) -> None:
    """One file without a log beside it, which a read-only folder takes, all of it on the disk."""
    with contextlib.closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    with draft.open("rb") as file:
        os.fsync(file.fileno())


def copy_all(source: Connection, source_name: str, target: Connection, name: str) -> Imported:
    """Add to `target` what `source` has beyond it, within the transaction of each."""
    alone(target)
    source_runs, source_series = runs_by_number(source), series_by_number(source)
    rows = [run_row(run) for run in source_runs.values()]
    rows_of_series = [series_row(series) for series in source_series.values()]
    for row in (*rows, *rows_of_series):
        check_row(row, source_name)
    runs = insert_new(target, RUNS, rows)
    insert_new(target, SERIES, rows_of_series)
    graphs = _copy_graphs(source, source_name, target)
    run_of = {run.key: number for number, run in runs_by_number(target).items()}
    series_of = {series: number for number, series in series_by_number(target).items()}
    points = _new_points(source, source_name, target, name, run_of)
    if points:
        target.execute(insert(POINTS), points)
    said = [
        {
            "series": series_of[each.series],
            "commit": each.commit,
            "reason": each.reason,
            "author": each.author,
            "acknowledged_at": each.acknowledged_at,
        }
        for each in acknowledgements_from(source, source_series)
    ]
    for row in said:
        check_row(row, source_name)
    return Imported(runs, len(points), graphs, insert_new(target, ACKNOWLEDGEMENTS, said))


def _copy_graphs(source: Connection, source_name: str, target: Connection) -> int:
    known = set(target.execute(select(GRAPHS.c.digest)).scalars())
    wanted = [each for each in source.execute(select(GRAPHS.c.digest)).scalars() if each not in known]
    for digest in sorted(wanted):
        frame = bytes(source.execute(select(GRAPHS.c.frame).where(GRAPHS.c.digest == digest)).scalar_one())
        data = restored(frame, digest, source_name)
        target.execute(insert(GRAPHS).values(digest=digest, nbytes=len(data), frame=frame))
    return len(wanted)


def _new_points(
    source: Connection, source_name: str, target: Connection, name: str, run_of: dict[str, int]
) -> list[dict[str, Any]]:
    """The rows of points that `target` has not; raises InputError where it has another one in its place."""
    runs, series = runs_by_number(source), series_by_number(source)
    own_runs, own_series = runs_by_number(target), series_by_number(target)
    series_of = {each: number for number, each in own_series.items()}
    ours = {}
    for columns in target.execute(select(*POINT_COLUMNS)):
        ours[columns[1], columns[2]] = point_from(columns, own_runs, own_series)
    rows = []
    for columns in source.execute(select(*POINT_COLUMNS).order_by(POINTS.c.number)):
        point = point_from(columns, runs, series)
        row = point_row(point.figures, point.fingerprints, point.nodes, point.cut_short)
        check_row(row, source_name)
        keys = {"run": run_of[point.run.key], "series": series_of[point.series]}
        there = ours.get((keys["run"], keys["series"]))
        if there is None:
            rows.append(row | keys)
        elif not same_point(there, row):
            raise InputError(
                source_name,
                f"run {point.run.key[:12]}, series {point.series.label}",
                f"an arena of {point.figures.arena} bytes where {name} has {there.figures.arena}",
                "the same point in both: one of the two stores was changed by hand",
            )
    return rows
