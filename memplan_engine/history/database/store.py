"""The store of a project's history: what is recorded is there whole or not at all."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.history.clock import clock_remarks
from memplan_engine.history.database.column_queries import read_columns
from memplan_engine.history.database.connecting import for_writing
from memplan_engine.history.database.failures import explained
from memplan_engine.history.database.pruning import Pruned, prune_points
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
from memplan_engine.history.database.transfer import Imported, copy_all, export_store
from memplan_engine.history.graph_blobs import compressed, digest_of, graph_from_json, restored
from memplan_engine.history.history_values import (
    Acknowledgement,
    HistoryPoint,
    HistoryRun,
    HistorySeries,
    NewPoint,
)
from memplan_engine.history.point_columns import FIGURES, HistoryColumns

MOST_AT_ONCE = 10_000
"""Numbers in a query: no database takes any number of parameters."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is in the store now: the `run` with its key, its `points` as they were given, and `remarks` on
    what is odd about its times."""

    run: HistoryRun
    points: tuple[HistoryPoint, ...]
    remarks: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class History:
    """A store that is open; `open_history` gives one. `name` is its file, or its URL without the password.

    Several processes may record into one store at once. All methods raise an InputError where the database
    fails: a disk that is full, a store that others hold for too long, one that may only be read.
    """

    engine: Engine
    name: str
    read_only: bool = False

    def record(self, run: HistoryRun, measured: Iterable[NewPoint]) -> Recorded:
        """Add `measured` to `run`, which is new unless the store has its key: all points, or none.

        A point that is there already is left as it is, so that what was interrupted may be sent again.

        Raises
        ------
        InputError: another point of one series in the same run; a graph without the digest that it claims;
        text or numbers that no database keeps; a store that cannot be written to.
        """
        given = list(measured)
        run = replace(run, key=run.key or uuid.uuid4().hex, recorded_at=run.recorded_at or int(time.time()))
        check_row(run_row(run), self.name)
        rows = [point_row(each.figures, each.fingerprints, each.nodes, each.cut_short) for each in given]
        for row, each in zip(rows, given, strict=True):
            check_row(row | series_row(each.series), self.name)
        graphs = self._graphs(given)
        with self._writing() as connection:
            latest = connection.execute(select(func.max(RUNS.c.recorded_at))).scalar()
            insert_new(connection, RUNS, [run_row(run)])
            numbers = runs_by_number(connection, select(RUNS).where(RUNS.c.key == run.key))
            ((run_number, run),) = numbers.items()
            insert_new(connection, GRAPHS, graphs)
            series = self._series_numbers(connection, {each.series for each in given})
            points = []
            for row, each in zip(rows, given, strict=True):
                keys = {"run": run_number, "series": series[each.series]}
                self._check_graph(connection, each)
                insert_new(connection, POINTS, [row | keys])
                points.append(self._same(connection, row, run, each.series, keys))
        return Recorded(run, tuple(points), clock_remarks(run, latest))

    def note(self, runs: Iterable[HistoryRun]) -> int:
        """Add `runs`, which have keys, without points: commits whose order is known. How many were new.

        Raises
        ------
        InputError: as `record` does.
        """
        rows = [run_row(run) for run in runs]
        for row in rows:
            check_row(row, self.name)
        with self._writing() as connection:
            return insert_new(connection, RUNS, rows)

    def runs(self, project: str | None = None) -> list[HistoryRun]:
        """All runs, or those of `project`, in the order in which they came."""
        asked = select(RUNS) if project is None else select(RUNS).where(RUNS.c.project == project)
        with self._reading() as connection:
            return list(runs_by_number(connection, asked).values())

    def series(self, project: str | None = None) -> list[HistorySeries]:
        """All series, or those of `project`, in the order in which they came."""
        asked = select(SERIES) if project is None else select(SERIES).where(SERIES.c.project == project)
        with self._reading() as connection:
            return list(series_by_number(connection, asked).values())

    def points(
        self, series: HistorySeries | Sequence[HistorySeries] | None = None, commit: str = ""
    ) -> list[HistoryPoint]:
        """All points, or those of one or several `series`, or of one `commit`, in the order in which they
        came; `changes.in_order` puts those of one series into the order of commits."""
        asked, of_runs = select(*POINT_COLUMNS).order_by(POINTS.c.number), select(RUNS)
        if commit:
            of_runs = of_runs.where(RUNS.c.commit == commit)
            asked = asked.where(POINTS.c.run.in_(select(RUNS.c.number).where(RUNS.c.commit == commit)))
        with self._reading() as connection:
            known = series_by_number(connection)
            if series is not None:
                wanted = {series} if isinstance(series, HistorySeries) else set(series)
                known = {number: each for number, each in known.items() if each in wanted}
                asked = asked.where(POINTS.c.series.in_(known))
            runs = runs_by_number(connection, of_runs)
            return [point_from(row, runs, known) for row in connection.execute(asked)]

    def counts(self) -> tuple[int, int]:
        """How many points there are, and how many graphs."""
        with self._reading() as connection:
            points, graphs = (
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (POINTS, GRAPHS)
            )
        return points, graphs

    def latest_points(self, project: str) -> list[HistoryPoint]:
        """Of each series of `project` the point that came last, in that order: what there is now, however
        long the history is."""
        newest = select(func.max(POINTS.c.number)).group_by(POINTS.c.series)
        of_project = select(SERIES.c.number).where(SERIES.c.project == project)
        asked = select(*POINT_COLUMNS).where(
            POINTS.c.number.in_(newest.where(POINTS.c.series.in_(of_project)))
        )
        with self._reading() as connection:
            known = series_by_number(connection, select(SERIES).where(SERIES.c.project == project))
            runs = runs_by_number(connection)
            return [
                point_from(row, runs, known) for row in connection.execute(asked.order_by(POINTS.c.number))
            ]

    def points_at(self, numbers: Iterable[int]) -> dict[int, HistoryPoint]:
        """The points with these `numbers`, by number; those that there are not are left out."""
        wanted = sorted(set(numbers))
        found: dict[int, HistoryPoint] = {}
        with self._reading() as connection:
            known = series_by_number(connection)
            for begin in range(0, len(wanted), MOST_AT_ONCE):
                named = POINTS.c.number.in_(wanted[begin : begin + MOST_AT_ONCE])
                of_these = select(RUNS).where(RUNS.c.number.in_(select(POINTS.c.run).where(named)))
                runs = runs_by_number(connection, of_these)
                rows = connection.execute(select(*POINT_COLUMNS).where(named).order_by(POINTS.c.number))
                found |= {row.number: point_from(row, runs, known) for row in rows}
        return found

    def columns(
        self, series: Sequence[HistorySeries] | None = None, figures: Sequence[str] = FIGURES
    ) -> HistoryColumns:
        """As arrays, in the order of commits: all runs, and of each of `series` (all unless given) the
        `figures` that are asked for.

        Raises
        ------
        InputError: a figure that there is not.
        """
        for name in figures:
            if name not in FIGURES:
                raise InputError(self.name, "figures", repr(name), f"of {', '.join(FIGURES)}")
        with self._reading() as connection:
            return read_columns(connection, None if series is None else set(series), figures)

    def graph_json(self, digest: str) -> bytes:
        """The graph with `digest` as memplan JSON in UTF-8; raises InputError where there is none, or where
        its bytes are damaged."""
        with self._reading() as connection:
            frame = connection.execute(select(GRAPHS.c.frame).where(GRAPHS.c.digest == digest)).scalar()
        if frame is None:
            raise InputError(self.name, f"graph {digest[:12]!r}", "no such graph", "one of a point")
        return restored(bytes(frame), digest, self.name)

    def graph(self, digest: str) -> Graph:
        """The graph with `digest`; raises InputError as `graph_json` does, and for one that is not sound."""
        return graph_from_json(self.graph_json(digest), f"{self.name}: graph {digest[:12]}")

    def graph_digests(self) -> set[str]:
        """The digests of all graphs that are there."""
        with self._reading() as connection:
            return set(connection.execute(select(GRAPHS.c.digest)).scalars())

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Keep that a change is meant, in place of what was said of it before; it counts for the commit in
        whatever run. Raises InputError for a series that the store has not."""
        given = replace(acknowledgement, acknowledged_at=acknowledgement.acknowledged_at or int(time.time()))
        row = {
            "commit": given.commit,
            "reason": given.reason,
            "author": given.author,
            "acknowledged_at": given.acknowledged_at,
        }
        check_row(row, self.name)
        table = ACKNOWLEDGEMENTS
        with self._writing() as connection:
            asked = select(SERIES.c.number).where(SERIES.c.digest == given.series.digest)
            number = connection.execute(asked).scalar()
            if number is None:
                raise InputError(self.name, given.series.label, "no such series", "one that was recorded")
            same = (table.c.series == number) & (table.c.commit == given.commit)
            if not connection.execute(table.update().where(same).values(**row)).rowcount:
                connection.execute(table.insert().values(series=number, **row))

    def withdraw(self, series: HistorySeries, commit: str) -> bool:
        """Take back that the change of `commit` in `series` is meant; whether that was said."""
        table = ACKNOWLEDGEMENTS
        number = select(SERIES.c.number).where(SERIES.c.digest == series.digest).scalar_subquery()
        with self._writing() as connection:
            said = table.delete().where((table.c.series == number) & (table.c.commit == commit))
            return connection.execute(said).rowcount > 0

    def acknowledgements(self) -> list[Acknowledgement]:
        """All of them, in the order in which they came."""
        with self._reading() as connection:
            return acknowledgements_from(connection, series_by_number(connection))

    def prune(self, newest: int = 100, before: int | None = None) -> Pruned:
        """Remove points that say nothing new, and graphs that nothing names any more; the runs stay.

        In each series and on each branch these stay: the first point and the last, both sides of each change
        of bytes, what is acknowledged, the `newest`, and all that was not recorded `before` (seconds since
        1970, UTC). What `history_changes` finds is the same afterwards.
        """
        if newest < 0:
            raise InputError(self.name, "newest", str(newest), "0 or more points")
        with self._writing() as connection:
            return prune_points(connection, newest, before)

    def export(self, path: Path | str) -> None:
        """Write all of the store into one file, a store itself, which replaces what stood at `path` when it
        is whole. Raises InputError where it cannot be written, or is this store."""
        with self._reading() as connection:
            export_store(connection, self.name, path)

    def merge(self, other: History) -> Imported:
        """Add what `other`, such as one that was exported, has beyond this store: all of it, or nothing.

        Raises
        ------
        InputError: a run that both have with another point of one series, a graph whose bytes are damaged.
        """
        with other._reading() as source, self._writing() as connection:
            return copy_all(source, other.name, connection, self.name)

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A moment of the store: what others write meanwhile is not in it."""
        with explained(self.name), self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self.read_only:
            expected = "one that was opened for writing"
            raise InputError(self.name, "", "a store that was opened for reading only", expected)
        with explained(self.name), for_writing(self.engine).begin() as connection:
            yield connection

    def _graphs(self, given: list[NewPoint]) -> list[dict[str, Any]]:
        """The rows of the graphs, by digest: whoever writes at the same time goes in the same order."""
        frames = {}
        for each in given:
            digest = each.fingerprints.graph
            if each.graph_json and digest not in frames:
                if digest_of(each.graph_json) != digest:
                    expected = f"that of its bytes, {digest_of(each.graph_json)[:12]}"
                    raise InputError(self.name, each.series.label, f"graph digest {digest[:12]!r}", expected)
                frames[digest] = each.graph_json
        return [
            {"digest": digest, "nbytes": len(data), "frame": compressed(data)}
            for digest, data in sorted(frames.items())
        ]

    def _check_graph(self, connection: Connection, each: NewPoint) -> None:
        digest = each.fingerprints.graph
        if digest and not each.graph_json:
            asked = select(GRAPHS.c.digest).where(GRAPHS.c.digest == digest)
            if connection.execute(asked).scalar() is None:
                expected = "its JSON, or the digest of a graph that is there"
                raise InputError(self.name, each.series.label, f"only the digest {digest[:12]!r}", expected)

    def _series_numbers(self, connection: Connection, wanted: set[HistorySeries]) -> dict[HistorySeries, int]:
        ordered = sorted(wanted, key=lambda each: each.digest)
        insert_new(connection, SERIES, [series_row(each) for each in ordered])
        digests = [each.digest for each in ordered]
        found = series_by_number(connection, select(SERIES).where(SERIES.c.digest.in_(digests)))
        return {each: number for number, each in found.items()}

    def _same(
        self,
        connection: Connection,
        row: dict[str, Any],
        run: HistoryRun,
        series: HistorySeries,
        keys: dict[str, int],
    ) -> HistoryPoint:
        """The point that is in the store for `keys`, which has to be what `row` says."""
        asked = select(*POINT_COLUMNS).where(POINTS.c.run == keys["run"], POINTS.c.series == keys["series"])
        (found,) = connection.execute(asked)
        point = point_from(found, {keys["run"]: run}, {keys["series"]: series})
        if not same_point(point, row):
            raise InputError(
                self.name,
                f"run {run.key[:12]}, series {series.label}",
                f"an arena of {row['arena']} bytes where {point.figures.arena} were recorded",
                "one point for each series in a run",
            )
        return point
