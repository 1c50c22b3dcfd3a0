"""Which commit made a model need more memory: the stretch of history that grew most is split, until it is one
commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from memplan_engine.errors import InputError
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.commit_points import CommitRecorder, CommitResult
from memplan_engine.history.git.git_history import commits_between, known_commit
from memplan_engine.history.history_values import HistoryPoint
from memplan_engine.units import format_bytes

FIGURES = "demand", "arena"
"""What is looked at: first what the graph asks for, then what packing loses."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """What a search found: of the `whole` growth the most came with the `change`, in `figure`.

    `between` are commits within the change that could not be captured: one of them, or the last, is to blame.
    `results` are all commits that were looked at, in the order of history; `commits` is how many there are.
    """

    whole: HistoryChange
    change: HistoryChange
    figure: str
    between: tuple[str, ...]
    results: tuple[CommitResult, ...]
    commits: int

    @property
    def skipped(self) -> tuple[CommitResult, ...]:
        """The commits that could not be captured."""
        return tuple(each for each in self.results if each.point is None)

    @property
    def share(self) -> float:
        """Which part of the whole growth the change is."""
        return _growth(self.change, self.figure) / _growth(self.whole, self.figure)


def bisect_commits(
    recorder: CommitRecorder, good: str, bad: str, tell: Callable[[CommitResult], None] = lambda _: None
) -> Bisection:
    """The commit between `good` and `bad` with which the most of the growth came; each that is looked at is
    recorded, and told of.

    Of several steps it is the largest, unless what lies between them goes down again as much.

    Raises
    ------
    InputError: `bad` does not come from `good`, or needs no more; one of them cannot be captured.
    """
    top = recorder.recipe.top
    first = known_commit(top, good)
    line = [first, *commits_between(top, first, bad)]
    recorder.note(line[-1], len(line))
    results: dict[int, CommitResult] = {}

    def look(places: list[int]) -> None:
        where = {line[place]: place for place in places}
        for result in recorder.record(list(where)):
            results[where[result.commit]] = result
            tell(result)

    look(sorted({0, len(line) - 1}))
    ends = [_point(results[place], name) for place, name in ((0, good), (len(line) - 1, bad))]
    whole = HistoryChange(*ends)
    figure = next((name for name in FIGURES if _growth(whole, name) > 0), None)
    if figure is None:
        before, after = (format_bytes(end.figures.demand) for end in ends)
        expected = f"more than {good} does: that is what can be searched for"
        raise InputError(f"commit {bad}", "demand", f"{after} after {before}", expected)
    while True:
        start, end = _widest(results, figure)
        places = _places(start, end, results, recorder.trees.count)
        if not places:
            break
        look(places)
    return Bisection(
        whole,
        HistoryChange(_point(results[start], good), _point(results[end], bad)),
        figure,
        tuple(line[start + 1 : end]),
        tuple(results[place] for place in sorted(results)),
        len(line),
    )


def _point(result: CommitResult, name: str) -> HistoryPoint:
    if result.point is None:
        raise InputError(f"commit {name}", "", result.why_not, "one that can be captured")
    return result.point


def _growth(change: HistoryChange, figure: str) -> int:
    return change.demand if figure == "demand" else change.arena


def _widest(results: dict[int, CommitResult], figure: str) -> tuple[int, int]:
    """The two neighbours among those that have a point between which the figure grew most, the first such."""
    known = {place: result.point for place, result in sorted(results.items()) if result.point}
    return max(
        pairwise(known), key=lambda pair: _growth(HistoryChange(known[pair[0]], known[pair[1]]), figure)
    )


def _places(before: int, after: int, results: dict[int, CommitResult], most: int) -> list[int]:
    """Up to `most` places between `before` and `after` to look at next, each the middle of the widest gap:
    what cannot be captured stands together, and is left behind in a jump."""
    seen = sorted(place for place in results if before <= place <= after)
    chosen: list[int] = []
    while len(chosen) < most:
        low, high = max(pairwise(seen), key=lambda gap: gap[1] - gap[0])
        if high - low < 2:
            break
        chosen.append((low + high) // 2)
        seen = sorted([*seen, chosen[-1]])
    return chosen
