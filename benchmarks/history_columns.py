"""How long a page waits for what it draws of a history: the points of many series as arrays.

    python benchmarks/history_columns.py [--series N] [--points N] [--store postgresql://user@host/database]

A store is filled with N series of N points each, in a file of its own or in a server's database, and read by
columns (arena and demand, then every figure) and point by point, of one series. Wall and CPU time in seconds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from memplan_engine.history.database.connecting import for_writing
from memplan_engine.history.database.row_values import POINTS, RUNS, SERIES, run_row, series_row
from memplan_engine.history.database.store import History
from memplan_engine.history.history_values import HistoryRun, HistorySeries
from memplan_engine.history.opening import open_history

ROUNDS = 3


def fill(history: History, series: int, points: int) -> None:
    """As `record` would, in one transaction."""
    runs = []
    for number in range(points):
        parent = f"{number - 1:040x}" if number else ""
        run = HistoryRun(
            "proj", f"{number:040x}", parent, 1_600_000_000 + 60 * number, "main", key=f"{number:032x}"
        )
        runs.append(replace(run, recorded_at=1_700_000_000 + number, versions=(("torch", "2.13.0"),)))
    with for_writing(history.engine).begin() as connection:
        connection.execute(insert(RUNS), [run_row(run) for run in runs])
        named = [HistorySeries("proj", f"model {number}") for number in range(series)]
        connection.execute(insert(SERIES), [series_row(each) for each in named])
        digests = ("structure", "problem", "plan")
        fixed: dict[str, Any] = {**dict.fromkeys(digests, "0" * 64), "bound_kind": "load"}
        fixed |= {"demand": 10**9, "bound": 10**9, "weights": 1, "temporaries": 1, "peak_op": "mm"}
        fixed |= {"nodes": 0, "cut_short": False}
        for number in range(series):
            rows = [
                {"run": run + 1, "series": number + 1, "arena": 10**9 + run // 100, **fixed}
                for run in range(points)
            ]
            connection.execute(insert(POINTS), rows)


def timed(what: str, work: Callable[[], object]) -> None:
    """Print the quickest of ROUNDS."""
    times = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = min(times)
    print(f"{what:<40} {wall:6.2f} {cpu:6.2f}")


def main() -> None:
    """Print a line for each way to read."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=50)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--store", help="an empty database; a temporary file unless given")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_history(asked.store or Path(folder) / "history.db") as history,
    ):
        fill(history, asked.series, asked.points)
        print(f"{asked.series} series of {asked.points:,} points{'wall':>18} {'CPU':>6}")
        timed("columns: arena and demand", lambda: history.columns(figures=("arena", "demand")))
        timed("columns: every figure", history.columns)
        (first, *_) = history.series()
        timed("points of one series", lambda: history.points(first))


if __name__ == "__main__":
    main()
