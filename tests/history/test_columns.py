"""Points as columns: the same as point by point, on both databases."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memplan_engine.errors import InputError
from memplan_engine.history.changes import in_order
from memplan_engine.history.database.store import History
from memplan_engine.history.history_values import HistoryFigures, HistoryRun, HistorySeries, NewPoint
from memplan_engine.history.point_columns import FIGURES, UNKNOWN

SERIES = tuple(HistorySeries("proj", name, variant) for name in ("gpt", "vit") for variant in ("", "batch 8"))


def filled(history: History, seed: int, count: int = 30) -> None:
    """Commits whose clocks are wrong, on two branches, some amended, some recorded again or with changed
    files, with points of some series."""
    rng = random.Random(seed)
    commits = [f"{number:04x}" for number in range(count)]
    # Each fifth commit took the place of the one before it.
    parents = ["", *(commits[number - (1 if number % 5 or number < 2 else 2)] for number in range(1, count))]
    for _ in range(count + 10):
        number = rng.randrange(count)
        run = HistoryRun(
            "proj", commits[number], parents[number], rng.randrange(1, 1000),
            rng.choice(["main", "topic"]), rng.random() < 0.2, recorded_at=rng.randrange(1, 10**9),
        )  # fmt: skip
        points = []
        for series in rng.sample(SERIES[:-1], rng.randrange(3)):
            demand = rng.randrange(2**62)
            figures = HistoryFigures(demand + rng.randrange(9), demand, demand, "load", rng.randrange(9))
            measured = {"eager": rng.choice([None, 0, 7]), "reserved": rng.choice([None, 2**63 - 1])}
            points.append(NewPoint(series, replace(figures, **measured)))
        history.record(run, points)


@pytest.mark.parametrize("seed", range(4))
def test_columns_say_what_points_say_in_the_order_of_commits(history: History, seed: int) -> None:
    filled(history, seed)
    columns = history.columns()
    runs, told = history.runs(), columns.runs
    assert len(told) == len(runs)
    assert sorted(zip(told.commit, told.branch, told.committed_at, told.recorded_at, strict=True)) == sorted(
        (run.commit, run.branch, run.committed_at, run.recorded_at) for run in runs
    )
    assert set(columns.points) == {point.series for point in history.points()}
    assert history.counts() == (len(history.points()), len(history.graph_digests()))
    for commit in ("0003", "0007", "none"):
        of_commit = [point for point in history.points(SERIES[:2]) if point.run.commit == commit]
        assert history.points(SERIES[:2], commit) == of_commit
    for series, own in columns.points.items():
        points = in_order(history.points(series), runs)
        assert [told.commit[run] for run in own.run] == [point.run.commit for point in points]
        assert [bool(told.dirty[run]) for run in own.run] == [point.run.dirty for point in points]
        # Of one commit recorded twice the two points may be the other way round: times come in whole seconds.
        for name in FIGURES:
            sizes = [getattr(point.figures, name) for point in points]
            expected = [UNKNOWN if size is None else size for size in sizes]
            assert own.figures[name].tolist() == expected


def test_columns_of_some_series_and_some_figures(history: History) -> None:
    filled(history, 1)
    columns = history.columns([SERIES[0], SERIES[-1]], ["demand"])
    # The last one has no points.
    assert list(columns.points) == [SERIES[0]]
    assert list(columns.points[SERIES[0]].figures) == ["demand"]
    assert len(columns.points[SERIES[0]]) == len(history.points(SERIES[0])) > 0
    with pytest.raises(InputError, match="figures: found 'peak', expected of arena, demand"):
        history.columns(figures=["peak"])


def test_an_empty_store_has_no_columns(history: History) -> None:
    columns = history.columns()
    assert (len(columns.runs), columns.points) == (0, {})
