"""Which changes of a series ask for somebody's attention: steps, and many small ones that add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from memplan_engine.diffing.regression import Limit
from memplan_engine.history.changes import (
    HistoryChange,
    history_changes,
    in_order,
    last_recordings,
    lines,
)
from memplan_engine.history.history_values import Acknowledgement, HistoryPoint, HistoryRun, HistorySeries

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History

NO_GROWTH = Limit()
"""Every byte counts: planned figures have no noise."""


class ChangeState(StrEnum):
    """What is to be done about a change: something, unless it is within the limit, lower, made good by
    later commits, or meant. One beside the arena is of weights, temporaries, or what was measured."""

    TO_LOOK_AT = "to look at"
    WITHIN_LIMIT = "within the limit"
    LOWER = "lower"
    BESIDE = "beside the arena"
    MADE_GOOD = "made good since"
    ACKNOWLEDGED = "acknowledged"


@dataclass(frozen=True, slots=True)
class Watched:
    """A series on one branch: its `points` in the order of commits, its `changes` with the state of each.

    `level` is what growth is measured from: the last change that was acknowledged, else the point before the
    branch, which is none of `points`, or the first of them where there is none or nothing changed with it.
    `left` are commits that were recorded on the branch and that it has left since: amended, rebased, or
    replaced by a forced push; `meant` are the words of those who acknowledged changes.
    """

    points: tuple[HistoryPoint, ...]
    changes: tuple[tuple[HistoryChange, ChangeState], ...]
    level: HistoryPoint
    limit: Limit = field(default=NO_GROWTH)
    left: tuple[str, ...] = ()
    meant: tuple[Acknowledgement, ...] = ()

    @property
    def latest(self) -> HistoryPoint:
        """The point of the last commit."""
        return self.points[-1]

    @property
    def commits(self) -> tuple[HistoryPoint, ...]:
        """The point of each commit, the last where it was recorded again."""
        return tuple(last_recordings(self.points))

    @property
    def growth(self) -> HistoryChange:
        """To the latest point from where it grew most: from the level, or from before a step to look at, to
        which it may have come down since."""
        bases = [self.level, *(step.before for step in self.open_steps)]
        changes = [HistoryChange(base, self.latest) for base in bases]
        return max(changes, key=lambda each: (grown(each, self.limit), each.demand, each.arena))

    @property
    def steps(self) -> tuple[HistoryChange, ...]:
        """The changes since the level was set that are to be looked at, or were until they were made good."""
        place = {point.number: index for index, point in enumerate(self.points)}
        since = place.get(self.level.number, -1)
        return tuple(
            change
            for change, state in self.changes
            if state in (ChangeState.TO_LOOK_AT, ChangeState.MADE_GOOD) and place[change.after.number] > since
        )

    @property
    def open_steps(self) -> tuple[HistoryChange, ...]:
        """Those of `steps` that later commits have not made good."""
        return tuple(
            step for step in self.steps if grown(HistoryChange(step.before, self.latest), self.limit)
        )

    @property
    def drifted(self) -> bool:
        """Whether changes that are each within the limit have added up to more than it."""
        return not self.open_steps and grown(self.growth, self.limit)

    @property
    def alarming(self) -> bool:
        """Whether the latest point needs more than is allowed: by steps, or by drift."""
        return grown(self.growth, self.limit)


def grown(change: HistoryChange, limit: Limit = NO_GROWTH) -> bool:
    """Whether `change` goes beyond `limit`: in demand, which the graph asks for, or else in the arena, of
    which the rest is lost to packing."""
    before = change.before.figures
    demand = change.demand > limit.allowed_of(before.demand)
    return demand or change.arena > limit.allowed_of(before.arena)


def watch(
    points: Iterable[HistoryPoint],
    runs: Iterable[HistoryRun] = (),
    acknowledged: Iterable[Acknowledgement] = (),
    *,
    branch: str | None = None,
    limit: Limit = NO_GROWTH,
) -> Watched | None:
    """The points of one series on `branch` (the one recorded last, unless given) with what is to be looked
    at; `acknowledged` are of that series. None where there is no such point. What was recorded with changed
    files is no part of it.
    """
    runs = list(runs)
    ordered = [point for point in in_order(points, runs) if not point.run.dirty]
    if branch is None:
        newest = max(ordered, key=lambda point: point.number, default=None)
        branch = newest.run.branch if newest else ""
    line = lines(ordered, runs).get((branch, False), [])
    if not line:
        return None
    own = {point.number for point in line}
    changes = [change for change in history_changes(ordered, runs) if change.after.number in own]
    others = (point for point in ordered if point.run.branch == branch and point.number not in own)
    left = sorted({point.run.commit for point in others})
    return watched_line(line, changes, acknowledged, limit, left)


def watched_line(
    line: Sequence[HistoryPoint],
    changes: Iterable[HistoryChange],
    acknowledged: Iterable[Acknowledgement] = (),
    limit: Limit = NO_GROWTH,
    left: Iterable[str] = (),
) -> Watched:
    """The points of one `line`, at least one, whose `changes` are known; both in the order of commits. Points
    that are neither the first, the last, nor those after a change may be left out. The branch has `left`
    those commits."""
    changes, judged, level = list(changes), [], line[0]
    meant = {said.commit: said for said in acknowledged}
    if changes and changes[0].after.number == level.number:
        level = changes[0].before
    for change in changes:
        state = _state(change, line[-1], change.after.run.commit in meant, limit)
        judged.append((change, state))
        if state is ChangeState.ACKNOWLEDGED:
            level = change.after
    return Watched(tuple(line), tuple(judged), level, limit, tuple(left), tuple(meant.values()))


def watch_series(
    history: History,
    series: Sequence[HistorySeries],
    *,
    branch: str | None = None,
    usual: str = "",
    limit: Limit = NO_GROWTH,
) -> list[Watched]:
    """`watch` of each of `series` that has points there, with what `history` has acknowledged. Where no
    `branch` is given, a series is looked at on the `usual` one if it has points there."""
    by_series: dict[HistorySeries, list[HistoryPoint]] = {each: [] for each in series}
    for point in history.points(series):
        by_series[point.series].append(point)
    runs, said = history.runs(), history.acknowledgements()
    found = []
    for each, points in by_series.items():
        own = [run for run in runs if run.project == each.project]
        meant = [word for word in said if word.series == each]
        named = {point.run.branch for point in points if not point.run.dirty}
        on = usual if branch is None and usual and usual in named else branch
        found.append(watch(points, own, meant, branch=on, limit=limit))
    return [each for each in found if each]


def _state(change: HistoryChange, latest: HistoryPoint, acknowledged: bool, limit: Limit) -> ChangeState:
    if acknowledged:
        return ChangeState.ACKNOWLEDGED
    if grown(change, limit):
        still = grown(HistoryChange(change.before, latest), limit)
        return ChangeState.TO_LOOK_AT if still else ChangeState.MADE_GOOD
    if grown(change):
        return ChangeState.WITHIN_LIMIT
    return ChangeState.LOWER if change.demand or change.arena else ChangeState.BESIDE
