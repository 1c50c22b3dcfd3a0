"""Series over the commits of one branch as a page draws them: columns for the picture, and as values only the
points at which something changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memplan_engine.diffing.regression import Limit
from memplan_engine.history.alarms import NO_GROWTH, Watched, watched_line
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.commit_order import first_parents, left_behind, nearest_ancestor
from memplan_engine.history.history_values import HistorySeries
from memplan_engine.history.point_columns import HistoryColumns, Ints, PointColumns, RunColumns

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """A `series` on one branch, in the order of commits: (points,) each the place of the run in `RunColumns`,
    the `arena` and the `demand`, bytes. Of its points `watched` has the first, the last, and those after a
    change."""

    series: HistorySeries
    run: Ints
    arena: Ints
    demand: Ints
    watched: Watched

    def __len__(self) -> int:
        return len(self.run)


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """Places in `points` of what is on the branch, and of both sides of its changes; commits that it left."""

    series: HistorySeries
    points: PointColumns
    places: Ints
    before: Ints
    after: Ints
    left: tuple[str, ...]

    @property
    def needed(self) -> set[int]:
        ends = self.places[[0, -1]]
        return set(self.points.number[np.concatenate([ends, self.before, self.after])].tolist())


def usual_branch(columns: HistoryColumns) -> str:
    """The branch with the most runs of files that were not changed, of several the one that was recorded
    last; "" without any run."""
    runs = columns.runs
    counts: dict[str, tuple[int, int]] = {}
    for branch, dirty, when in zip(runs.branch, runs.dirty.tolist(), runs.recorded_at.tolist(), strict=True):
        if not dirty:
            count, latest = counts.get(branch, (0, 0))
            counts[branch] = count + 1, max(latest, when)
    # What is noted so that its order is known was recorded on no branch.
    named = {branch: told for branch, told in counts.items() if branch} or counts
    return max(named, key=named.__getitem__, default="")


def courses(
    history: History,
    columns: HistoryColumns,
    series: Iterable[HistorySeries],
    branch: str,
    limit: Limit = NO_GROWTH,
) -> list[Course]:
    """The course on `branch` of each of `series` that has points there, as `watch_series` tells of them;
    `columns` are those of `history`, with all figures. A point becomes a value only where something changed.
    """
    runs = columns.runs
    on_branch = np.array([name == branch for name in runs.branch], bool) & ~runs.dirty
    parents = first_parents(zip(runs.commit, runs.parent, strict=True))
    series = list(series)
    left = {
        each: _left(runs, on_branch, each, parents) for each in {each.project for each in series} if branch
    }
    lines = [
        _line(each, columns.points[each], runs, on_branch, parents, left.get(each.project, set()))
        for each in series
    ]
    found = [line for line in lines if line is not None]
    points = history.points_at(number for line in found for number in line.needed)
    said = history.acknowledgements()
    made = []
    for line in found:
        numbers = line.points.number
        sides = zip(numbers[line.before].tolist(), numbers[line.after].tolist(), strict=True)
        changes = [HistoryChange(points[before], points[after]) for before, after in sides]
        kept = np.unique(np.concatenate([line.places[[0, -1]], line.after]))
        meant = [word for word in said if word.series == line.series]
        own = [points[each] for each in numbers[kept].tolist()]
        watched = watched_line(own, changes, meant, limit, line.left)
        figures = line.points.figures
        arena, demand = figures["arena"][line.places], figures["demand"][line.places]
        made.append(Course(line.series, line.points.run[line.places], arena, demand, watched))
    return made


def _line(
    series: HistorySeries,
    points: PointColumns,
    runs: RunColumns,
    on_branch: NDArray[np.bool_],
    parents: Mapping[str, str],
    left: set[str],
) -> _Line | None:
    places = np.flatnonzero(on_branch[points.run])
    if not len(places):
        return None
    gone: set[str] = set()
    if left:
        commits = [runs.commit[run] for run in points.run[places].tolist()]
        gone, places = left.intersection(commits), places[[commit not in left for commit in commits]]
    if not len(places):
        return None
    sizes = np.stack(list(points.figures.values()))
    before = places[:-1]
    root = _root(points, runs, int(places[0]), parents)
    after = places[1:]
    if root is not None:
        before, after = np.append(root, before), places
    changed = (sizes[:, before] != sizes[:, after]).any(axis=0)
    return _Line(series, points, places, before[changed], after[changed], tuple(sorted(gone)))


def _left(
    runs: RunColumns, on_branch: NDArray[np.bool_], project: str, parents: Mapping[str, str]
) -> set[str]:
    """Commits of `project` among those `on_branch` that the branch has left."""
    places = np.flatnonzero(on_branch)
    came = places[np.argsort(runs.number[places])].tolist()
    return left_behind(
        [runs.commit[place] for place in came if runs.project[place] == project and runs.commit[place]],
        parents,
    )


def _root(points: PointColumns, runs: RunColumns, first: int, parents: Mapping[str, str]) -> int | None:
    """The place of the last point of the nearest ancestor of the point at `first` that has one."""
    commit = runs.commit[points.run[first]]
    if commit not in parents:
        return None
    latest = _places_by_commit(points, runs)
    return latest.get(nearest_ancestor(commit, parents, latest))


def _places_by_commit(points: PointColumns, runs: RunColumns) -> dict[str, int]:
    place_of: Sequence[int] = points.run.tolist()
    return {
        runs.commit[run]: place
        for place, run in enumerate(place_of)
        if runs.commit[run] and not runs.dirty[run]
    }
