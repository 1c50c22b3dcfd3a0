"""How long the page History takes for many series over many commits: read, judged, drawn.

`python -m benchmarks history_page [--series 50] [--points 10000]` fills a store in a temporary folder and
prints the wall and CPU time of each part, the best of several. What is read is kept for all visitors until
the store changes; what is drawn is drawn at each click.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import plotly.io
from memplan_dashboard.views.history.history_chart import LIGHT, figure, small

from benchmarks.history_columns import fill
from memplan_engine.history.courses import courses, usual_branch
from memplan_engine.history.opening import open_history

Value = TypeVar("Value")
ROUNDS = 3


def timed(what: str, work: Callable[[], Value]) -> tuple[Value, float]:
    """Print the quickest of ROUNDS; what `work` gives, and its wall time in seconds."""
    times = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        value = work()
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = min(times)
    print(f"{what:<40}{wall:8.3f} s wall {cpu:8.3f} s CPU", flush=True)
    return value, wall


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=50)
    parser.add_argument("--points", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memplan-benchmark-") as folder:
        path = Path(folder) / "history.db"
        with open_history(path) as history:
            fill(history, asked.series, asked.points)
        with open_history(path, read_only=True) as history:
            columns, read = timed("read as columns, once", history.columns)
            branch = usual_branch(columns)
            found, judged = timed(
                "changes found and judged, once",
                lambda: courses(history, columns, columns.points, branch),
            )
    _, sparks = timed(
        f"{len(found)} small pictures", lambda: [small(each.arena, "#4477AA") for each in found]
    )
    text, drawn = timed(
        "the chart of one, as JSON",
        lambda: plotly.io.to_json(figure(found[0], columns.runs, LIGHT, {})),
    )
    changes = sum(len(each.watched.changes) for each in found)
    print(f"{len(found)} series × {asked.points:,} points, {changes:,} changes, {len(text):,} bytes of JSON")
    print(
        f"drawn in {sparks + drawn:.3f} s, with what is read once in {read + judged + sparks + drawn:.3f} s"
    )


if __name__ == "__main__":
    main()
