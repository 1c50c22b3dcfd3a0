"""Writers that are killed, again and again, and what they leave: a process of its own, which forks them.

killed.py record-statements LOCATION       killed before the first statement, the second, and so on
killed.py record LOCATION KILLS SEED       killed at any moment, until so many have been
killed.py migrate-statements LOCATION
killed.py migrate LOCATION KILLS SEED
killed.py together LOCATION ROUNDS         so many at once, into a store that none has made; one is killed
It prints how many were killed, how many runs the store has, and of how many somebody was told.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, text

from memplan_engine.history.database.connecting import connect_to, find_location, for_writing
from memplan_engine.history.database.migrating import MIGRATIONS, migrate, version_of
from memplan_engine.history.graph_blobs import digest_of
from memplan_engine.history.history_values import (
    Fingerprints,
    HistoryFigures,
    HistoryRun,
    HistorySeries,
    NewPoint,
)
from memplan_engine.history.opening import open_history

SERIES = (HistorySeries("proj", "gpt2"), HistorySeries("proj", "bert"))
RECORDS = 4
SOONER = 0.97
NEXT = Path(__file__).parent / "next_version"
Listener = Callable[[Engine], None]


def points_of(key: str) -> list[NewPoint]:
    graphs = [f"{key} {series.model} ".encode() * 300 for series in SERIES]
    figures = HistoryFigures(int(key, 16) % 1000 + 1, 1, 1, "load")
    return [
        NewPoint(series, figures, Fingerprints(digest_of(data)), data)
        for series, data in zip(SERIES, graphs, strict=True)
    ]


def record(location: str, number: int, told: int, watch: Listener, records: int = RECORDS) -> None:
    """Open the store, made by whoever is first, and record; tell of each point that is committed."""
    engine = connect_to(find_location(location), False, 30)
    watch(engine)
    migrate(engine, location)
    with open_history(location) as history:
        watch(history.engine)
        for index in range(records):
            key = f"{number:016x}{index:016x}"
            history.record(HistoryRun("proj", f"{key}00000000", key=key), points_of(key))
            os.write(told, f"{key}\n".encode())


def move_on(location: str, number: int, told: int, watch: Listener) -> None:
    """Bring the store to the next version."""
    engine = connect_to(find_location(location), False, 30)
    watch(engine)
    migrate(engine, location, (MIGRATIONS, NEXT))
    os.write(told, b"migrated\n")


def no_watch(engine: Engine) -> None:
    """Let it be."""


@dataclass
class Killer:
    """Ends this process before its statement number `last`, commits included."""

    last: int
    seen: int = 0
    watched: list[Any] = field(default_factory=list)

    def __call__(self, engine: Engine) -> None:
        event.listen(engine, "before_cursor_execute", self._count)
        event.listen(engine, "commit", self._count)

    def _count(self, *_: object) -> None:
        self.seen += 1
        if self.seen > self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def run_one(
    work: Callable[..., None], location: str, number: int, watch: Listener, seconds: float | None = None
) -> tuple[set[str], bool]:
    """What a process told that was killed at a statement or after `seconds`, and whether it was killed."""
    reading, telling = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            work(location, number, telling, watch)
        except BaseException as error:
            os.write(telling, f"error {error}\n".encode())
        finally:
            os._exit(0)
    os.close(telling)
    if seconds is not None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        lines = pipe.read().decode().splitlines()
    _, status = os.waitpid(child, 0)
    assert not any(line.startswith("error") for line in lines), lines
    return set(lines), os.WIFSIGNALED(status)


def check_recorded(location: str, committed: set[str]) -> int:
    """Every point that somebody was told of is there with its graph; of each run all points are, or none."""
    if "://" not in location:
        if not Path(location).exists():
            assert not committed
            return 0
        with contextlib.closing(sqlite3.connect(location)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    with open_history(location) as history:
        counts = Counter(point.run.key for point in history.points())
        assert committed <= counts.keys(), committed - counts.keys()
        assert counts.keys() == {run.key for run in history.runs()}
        assert set(counts.values()) <= {len(SERIES)}
        for point in history.points():
            (same,) = (each for each in points_of(point.run.key) if each.series == point.series)
            assert history.graph_json(point.fingerprints.graph) == same.graph_json
            assert point.figures == same.figures
        with history.engine.connect() as connection:
            graphs = connection.execute(text("SELECT count(*) FROM memplan_graphs")).scalar()
        assert graphs == len(SERIES) * len(counts)
    return len(counts)


def check_migrated(location: str, said: bool) -> bool:
    """The store is of the old version or of the new one, all of it; whether it is the new one. Taken back."""
    engine = connect_to(find_location(location), False, 30)
    with for_writing(engine).begin() as connection:
        version = version_of(connection, location)
        assert version in ("0001", "0002")
        assert version == "0002" or not said
        empty = None
        with contextlib.suppress(Exception), connection.begin_nested():
            empty = connection.execute(
                text("SELECT count(*) FROM memplan_points WHERE loss IS NULL")
            ).scalar()
        assert empty == (0 if version == "0002" else None)
        if version == "0002":
            connection.execute(text("ALTER TABLE memplan_points DROP COLUMN loss"))
            connection.execute(text("DROP TABLE memplan_more"))
            connection.execute(text("UPDATE memplan_version SET version_num = '0001'"))
    return version == "0002"


def record_statements(location: str) -> str:
    committed: set[str] = set()
    for last in range(10_000):
        told, killed = run_one(partial(record, records=2), location, last, Killer(last))
        committed |= told
        there = check_recorded(location, committed)
        if not killed:
            return f"{last} killed, {there} runs kept of {len(committed)} told"
    raise AssertionError("endless")


def record_any_moment(location: str, wanted: int, seed: int) -> str:
    draw = random.Random(seed)
    began = time.monotonic()
    committed, _ = run_one(record, location, 2**40, no_watch)
    usual = time.monotonic() - began
    kills = number = 0
    while kills < wanted:
        told, killed = run_one(record, location, number, no_watch, draw.uniform(0, usual))
        committed |= told
        kills += killed
        # Who was not killed took less time than that.
        usual *= 1 if killed else SOONER
        number += 1
        if number % 10 == 0 or kills == wanted:
            there = check_recorded(location, committed)
    return f"{kills} killed, {there} runs kept of {len(committed)} told"


def migrate_statements(location: str) -> str:
    run_one(record, location, 0, no_watch)
    for last in range(10_000):
        told, killed = run_one(move_on, location, last, Killer(last))
        moved = check_migrated(location, bool(told))
        if not killed:
            assert moved
            return f"{last} killed, {check_recorded(location, set())} runs kept"
    raise AssertionError("endless")


def migrate_any_moment(location: str, wanted: int, seed: int) -> str:
    draw = random.Random(seed)
    for number in range(5):
        run_one(record, location, number, no_watch)
    began = time.monotonic()
    run_one(move_on, location, 0, no_watch)
    usual = time.monotonic() - began
    assert check_migrated(location, True)
    kills = 0
    while kills < wanted:
        told, killed = run_one(move_on, location, 0, no_watch, draw.uniform(0, usual))
        kills += killed
        usual *= 1 if killed else SOONER
        check_migrated(location, bool(told))
    return f"{kills} killed, {check_recorded(location, set())} runs kept"


def together(location: str, rounds: int) -> str:
    children = []
    for number in range(rounds):
        reading, telling = os.pipe()
        children.append((child := os.fork(), reading))
        if child == 0:
            os.close(reading)
            with contextlib.suppress(BaseException):
                record(location, number, telling, Killer(30) if number == 0 else no_watch)
            os._exit(0)
        os.close(telling)
    committed: set[str] = set()
    for child, reading in children:
        with os.fdopen(reading, "rb") as pipe:
            committed |= set(pipe.read().decode().split())
        os.waitpid(child, 0)
    return f"{check_recorded(location, committed)} runs kept of {len(committed)} told"


MODES: dict[str, Callable[..., str]] = {
    "record-statements": record_statements,
    "record": record_any_moment,
    "migrate-statements": migrate_statements,
    "migrate": migrate_any_moment,
    "together": together,
}

if __name__ == "__main__":
    mode, place, *numbers = sys.argv[1:]
    print(MODES[mode](place, *(int(number) for number in numbers)))
