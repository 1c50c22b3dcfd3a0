"""What a page draws of series, read as columns: the same as point by point, on both databases."""

from __future__ import annotations

import pytest

from memplan_engine.diffing.regression import parse_limit
from memplan_engine.history.alarms import Watched, watch_series
from memplan_engine.history.courses import courses, usual_branch
from memplan_engine.history.database.store import History
from memplan_engine.history.history_values import (
    Acknowledgement,
    HistoryFigures,
    HistoryRun,
    HistorySeries,
    NewPoint,
)
from memplan_engine.reporters.history.change_words import growth_sentence
from tests.history.test_columns import SERIES, filled


def told(watched: Watched) -> list[object]:
    changes = [(change.before.number, change.after.number, state) for change, state in watched.changes]
    return [watched.left, changes, watched.level, watched.latest, watched.steps, growth_sentence(watched)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", ["0", "20%"])
def test_courses_say_what_points_say(history: History, seed: int, limit: str) -> None:
    filled(history, seed)
    for number, series in enumerate(SERIES[:-1]):
        history.acknowledge(Acknowledgement(series, f"{10 + number:04x}", "meant"))
    columns, allowed = history.columns(), parse_limit(limit)
    for branch in ("main", "topic"):
        found = courses(history, columns, columns.points, branch, allowed)
        expected = watch_series(history, list(columns.points), branch=branch, limit=allowed)
        assert [each.series for each in found] == [each.latest.series for each in expected]
        for course, watched in zip(found, expected, strict=True):
            assert told(course.watched) == told(watched)
            figures = [point.figures for point in watched.points]
            assert course.arena.tolist() == [each.arena for each in figures]
            assert course.demand.tolist() == [each.demand for each in figures]
    assert courses(history, columns, columns.points, "none") == []


def test_each_project_leaves_its_own_commits(history: History) -> None:
    other = HistorySeries("other", "net")
    for project, series, commits in (("proj", SERIES[0], ("a", "b", "x")), ("other", other, ("p", "q"))):
        for number, commit in enumerate(commits):
            parent = {"b": "a", "x": "a", "q": "p"}.get(commit, "")
            run = HistoryRun(project, commit, parent, number + 1, "main")
            history.record(run, [NewPoint(series, HistoryFigures(9 + number, 9, 9, "load"))])
    columns = history.columns()
    expected = watch_series(history, list(columns.points), branch="main")
    assert [each.left for each in expected] == [("b",), ()]
    found = courses(history, columns, columns.points, "main")
    assert [told(each.watched) for each in found] == [told(each) for each in expected]


def test_only_points_at_which_something_changed_become_values(history: History) -> None:
    for number in range(40):
        run = HistoryRun("proj", f"{number:04x}", f"{number - 1:04x}" if number else "", number + 1, "main")
        size = 100 if number < 25 else 90
        history.record(run, [NewPoint(SERIES[0], HistoryFigures(size, size, size, "load"))])
    columns = history.columns()
    (course,) = courses(history, columns, SERIES[:1], "main")
    assert len(course) == 40
    assert [point.run.commit for point in course.watched.points] == ["0000", "0019", "0027"]
    assert course.watched.latest.run.commit == f"{39:04x}"


def test_the_usual_branch_has_the_most_commits(history: History) -> None:
    assert usual_branch(history.columns()) == ""
    for number, branch in enumerate(["main", "main", "topic", "topic"]):
        history.record(HistoryRun("proj", f"{number:04x}", branch=branch, recorded_at=number + 1), [])
    assert usual_branch(history.columns()) == "topic"
    history.note([HistoryRun("proj", f"9{number:03x}", key=f"{number:032x}") for number in range(9)])
    history.record(HistoryRun("proj", "0100", branch="main", dirty=True), [])
    assert usual_branch(history.columns()) == "topic"
