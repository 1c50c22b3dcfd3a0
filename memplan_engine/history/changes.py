"""The points of one series in the order of commits, what changed between them, and which of them have to stay
for that to be seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from memplan_engine.history.commit_order import (
    commit_places,
    first_parents,
    left_behind,
    nearest_ancestor,
    node_of,
)
from memplan_engine.history.history_values import HistoryPoint, HistoryRun

Line = tuple[str, bool]
"""A branch, and whether its files were changed: what was tried out is no part of the branch's history."""


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """Two points of a series that follow each other and differ in bytes."""

    before: HistoryPoint
    after: HistoryPoint

    @property
    def demand(self) -> int:
        """By how many bytes the demand grew: what the graph itself needs."""
        return self.after.figures.demand - self.before.figures.demand

    @property
    def arena(self) -> int:
        """By how many bytes the arena grew."""
        return self.after.figures.arena - self.before.figures.arena

    @property
    def bytes_differ(self) -> bool:
        """Whether anything that is counted in bytes is not the same."""
        return self.before.figures.nbytes != self.after.figures.nbytes


def in_order(points: Iterable[HistoryPoint], runs: Iterable[HistoryRun] = ()) -> list[HistoryPoint]:
    """`points` so that each commit follows its parents; what that leaves open is by the time of the commit,
    then by when it came. `runs` are others whose parents are known, such as those without points."""
    points = sorted(points, key=lambda point: point.number)
    told = (
        (node_of(run.commit, run.key), run.commit, run.parent, run.committed_at or run.recorded_at)
        for run in [*runs, *(point.run for point in points)]
    )
    place = commit_places(told)

    def key(point: HistoryPoint) -> tuple[int, bool, int]:
        return place[node_of(point.run.commit, point.run.key)], point.run.dirty, point.number

    return sorted(points, key=key)


def last_recordings(ordered: Iterable[HistoryPoint]) -> list[HistoryPoint]:
    """Of points in the order of commits those that came last where one commit was recorded again, on the same
    branch, with or without changed files."""
    return list(
        {
            (each.series, node_of(each.run.commit, each.run.key), each.run.branch, each.run.dirty): each
            for each in ordered
        }.values()
    )


def history_changes(points: Iterable[HistoryPoint], runs: Iterable[HistoryRun] = ()) -> list[HistoryChange]:
    """Each point of one series that differs in bytes from the one before it on its branch, with that; the
    first of a branch is held against the nearest of its ancestors that has a point. What a branch has left
    (`left_behind`) is no part of it. In the order of commits.

    Planned figures are the same wherever they are taken: they differ or they do not, without statistics.
    """
    runs = list(runs)
    ordered = in_order(points, runs)
    parents = _parents([*runs, *(point.run for point in ordered)])
    found = []
    for line in lines(ordered, runs).values():
        root = _ancestor(line[0], ordered, parents)
        for before, after in pairwise([root, *line] if root else line):
            change = HistoryChange(before, after)
            if change.bytes_differ:
                found.append(change)
    place = {point.number: index for index, point in enumerate(ordered)}
    return sorted(found, key=lambda change: place[change.after.number])


def lines(ordered: Sequence[HistoryPoint], runs: Iterable[HistoryRun] = ()) -> dict[Line, list[HistoryPoint]]:
    """Points of one series in their order, by branch, without those that the branch has left. `runs` are
    others, whose parents are known; of a branch of which there are any, all have to be there, in the order
    in which they came."""
    by_line: dict[Line, list[HistoryPoint]] = defaultdict(list)
    for point in ordered:
        by_line[point.run.branch, point.run.dirty].append(point)
    runs, own = list(runs), [each.run for each in sorted(ordered, key=lambda point: point.number)]
    parents, came = _parents([*runs, *own]), {**_by_branch(own), **_by_branch(runs)}
    for (branch, dirty), line in by_line.items():
        if branch and not dirty:
            left = left_behind(came.get(branch, []), parents)
            line[:] = [point for point in line if point.run.commit not in left]
    return {key: line for key, line in by_line.items() if line}


def to_keep(
    points: Iterable[HistoryPoint],
    runs: Iterable[HistoryRun],
    acknowledged: Collection[str] = (),
    newest: int = 0,
    before: int | None = None,
) -> set[int]:
    """The numbers of those points of one series without which `history_changes` would find something else,
    with both sides of each change; those of `acknowledged` commits; the `newest`; and all that was not
    recorded `before` (seconds since 1970, UTC)."""
    runs = list(runs)
    ordered = in_order(points, runs)
    parents = _parents([*runs, *(point.run for point in ordered)])
    kept = {
        point.number for change in history_changes(ordered, runs) for point in (change.before, change.after)
    }
    for line in lines(ordered, runs).values():
        kept |= {line[0].number, line[-1].number}
        if root := _ancestor(line[0], ordered, parents):
            kept.add(root.number)
    kept |= {point.number for point in ordered if point.run.commit in acknowledged}
    kept |= set(sorted(point.number for point in ordered)[len(ordered) - newest :] if newest else ())
    if before is not None:
        kept |= {point.number for point in ordered if point.run.recorded_at >= before}
    return kept


def _by_branch(runs: Iterable[HistoryRun]) -> dict[str, list[str]]:
    """The commits of each branch that were recorded as they are, in the order of `runs`."""
    commits: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        if run.commit and not run.dirty:
            commits[run.branch].append(run.commit)
    return commits


def _parents(runs: Iterable[HistoryRun]) -> dict[str, str]:
    """The parent of each commit that has one, as the first run says that knows it."""
    return first_parents((run.commit, run.parent) for run in runs)


def _ancestor(
    first: HistoryPoint, ordered: Sequence[HistoryPoint], parents: Mapping[str, str]
) -> HistoryPoint | None:
    """The latest point of the nearest ancestor of `first` that has one; its own commit counts where its files
    were changed."""
    latest = {point.run.commit: point for point in ordered if point.run.commit and not point.run.dirty}
    if first.run.dirty and first.run.commit in latest:
        return latest[first.run.commit]
    return latest.get(nearest_ancestor(first.run.commit, parents, latest))
