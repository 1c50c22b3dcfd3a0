"""The search for the commit with which memory came, on lines of commits that are made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine.errors import InputError
from memplan_engine.history import bisecting
from memplan_engine.history.bisecting import Bisection, bisect_commits
from memplan_engine.history.commit_points import Came, CommitResult
from memplan_engine.history.history_values import (
    Fingerprints,
    HistoryFigures,
    HistoryPoint,
    HistoryRun,
    HistorySeries,
)

SERIES = HistorySeries("proj", "model")


@dataclass
class Line:
    """Commits 0, 1 … with their demand and arena, None for one that cannot be captured, and who was asked."""

    sizes: Sequence[tuple[int, int] | None]
    at_once: int = 1
    looked_at: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recipe = SimpleNamespace(top=Path())
        self.trees = SimpleNamespace(count=self.at_once)

    def note(self, head: str, most: int) -> None:
        assert (head, most) == (str(len(self.sizes) - 1), len(self.sizes))

    def record(self, commits: Sequence[str]) -> Iterator[CommitResult]:
        self.looked_at.append(list(commits))
        # Whoever is done first.
        for commit in reversed(commits):
            size = self.sizes[int(commit)]
            if size is None:
                yield CommitResult(commit, Came.SKIPPED, why_not="it does not build")
                continue
            figures = HistoryFigures(size[1], size[0], size[0], "load")
            run = HistoryRun("proj", commit, key=commit)
            point = HistoryPoint(int(commit), run, SERIES, figures, Fingerprints())
            yield CommitResult(commit, Came.CAPTURED, point)


def bisected(line: Line) -> Bisection:
    names = [str(number) for number in range(len(line.sizes))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bisecting, "known_commit", lambda top, name: name)
        patch.setattr(bisecting, "commits_between", lambda top, base, head: names[1:])
        recorder: Any = line
        return bisect_commits(recorder, names[0], names[-1])


def same(*sizes: int | None) -> list[tuple[int, int] | None]:
    return [None if size is None else (size, size) for size in sizes]


def pair(found: Bisection) -> tuple[str, str]:
    return found.change.before.run.commit, found.change.after.run.commit


@given(st.integers(2, 400), st.data(), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_one_step_is_found_in_logarithmic_time(count: int, data: st.DataObject, at_once: int) -> None:
    step = data.draw(st.integers(1, count - 1))
    line = Line(same(*[10] * step, *[14] * (count - step)), at_once)
    found = bisected(line)
    assert pair(found) == (str(step - 1), str(step))
    assert (found.share, found.between, found.skipped) == (1.0, (), ())
    assert len(line.looked_at) <= 1 + (count - 1).bit_length()
    assert all(len(some) <= max(2, at_once) for some in line.looked_at)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_of_several_steps_it_is_the_largest(steps: list[int]) -> None:
    sizes = [1]
    for step in steps:
        sizes.append(sizes[-1] + step)
    if sum(steps) == 0:
        with pytest.raises(InputError, match="expected more than 0 does"):
            bisected(Line(same(*sizes)))
        return
    found = bisected(Line(same(*sizes)))
    assert found.change.demand == max(steps)
    assert found.share == max(steps) / sum(steps)
    assert int(pair(found)[1]) - int(pair(found)[0]) == 1


@given(st.integers(3, 60), st.data())
@settings(max_examples=60, deadline=None)
def test_what_does_not_build_is_skipped_and_told(count: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(1, count - 1))
    broken = data.draw(st.sets(st.integers(1, count - 2)))
    sizes = [None if place in broken else 10 + 4 * (place >= step) for place in range(count)]
    found = bisected(Line(same(*sizes), 2))
    before, after = map(int, pair(found))
    assert before < step <= after
    assert [str(place) for place in range(before + 1, after)] == list(found.between)
    assert set(map(int, found.between)) <= broken
    assert {int(each.commit) for each in found.skipped} <= broken


def test_a_block_that_does_not_build_is_left_behind_in_jumps() -> None:
    sizes = [10] * 20 + [None] * 60 + [10] * 10 + [14] * 10
    line = Line(same(*sizes))
    found = bisected(line)
    assert pair(found) == ("89", "90")
    assert len(found.skipped) < 10


def test_where_demand_is_the_same_packing_is_searched_for() -> None:
    found = bisected(Line([(10, 10), (10, 10), (10, 13), (10, 13)]))
    assert (pair(found), found.figure) == (("1", "2"), "arena")


def test_ends_that_cannot_be_compared_are_told() -> None:
    with pytest.raises(InputError, match="commit 0: found it does not build, expected one that can"):
        bisected(Line(same(None, 3)))
    with pytest.raises(InputError, match="commit 2: demand: found 7 B after 10 B"):
        bisected(Line(same(10, 20, 7)))
