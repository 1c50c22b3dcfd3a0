"""What a run is compared with: what was recorded where its branch began, or at the nearest commit before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.diffing.regression import Limit
from memplan_engine.errors import InputError
from memplan_engine.history.alarms import NO_GROWTH, grown
from memplan_engine.history.changes import HistoryChange, in_order, lines
from memplan_engine.history.git.git_commit import ask_git, current_branch, work_tree
from memplan_engine.history.git.git_history import ancestors, commit_of, is_ancestor, merge_base
from memplan_engine.history.history_values import HistoryPoint, HistoryRun, HistorySeries

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History

TARGETS = "GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"
"""Variables in which CI says where a pull request goes."""
USUAL = "origin/HEAD", "origin/main", "origin/master", "main", "master"
MOST_COMMITS = 10_000
"""As far back as a baseline is looked for."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A `point` beside its `baseline`, None where nothing was recorded before it."""

    point: HistoryPoint
    baseline: HistoryPoint | None
    limit: Limit = NO_GROWTH

    @property
    def change(self) -> HistoryChange | None:
        """From the baseline to the point."""
        return HistoryChange(self.baseline, self.point) if self.baseline else None

    @property
    def grew(self) -> bool:
        """Whether it needs more than the baseline and the limit allow."""
        return self.change is not None and grown(self.change, self.limit)


def target_branch(folder: Path) -> str:
    """The branch that the work in the repository at `folder` goes to: as CI says, else the usual one that it
    has, "" for none."""
    said = next((name for variable in TARGETS if (name := os.environ.get(variable))), "")
    names = (f"origin/{said}", said) if said else USUAL
    for name in names:
        try:
            commit_of(folder, name)
        except InputError:
            continue
        return name
    if said:
        expected = f"its commits: `git fetch origin {said}` brings them"
        raise InputError(
            str(folder), "git", f"no such branch, {said!r}, which CI says is the target", expected
        )
    return ""


def baseline_commit(run: HistoryRun, folder: Path | str = ".", against: str = "") -> str:
    """The commit with which `run` is compared: the last that it has in common with `against`, the target of
    a pull request unless given. On that branch itself the commit before; what has changed files is compared
    with its own commit. "" where there is none.

    Raises
    ------
    InputError: no such branch; a clone too shallow to say.
    """
    top = work_tree(folder)
    if top is None or not run.commit:
        return run.commit if run.dirty else run.parent
    target = against or target_branch(top)
    common = merge_base(top, run.commit, target) if target else run.commit
    if common != run.commit:
        return common
    return run.commit if run.dirty else run.parent


def baseline_points(
    history: History, series: Sequence[HistorySeries], commit: str, folder: Path | str = "."
) -> dict[HistorySeries, HistoryPoint]:
    """Of each of `series` the last point of `commit`, or of the nearest commit before that has one: as git
    knows them, and beyond that as the store does. What was recorded with changed files does not count."""
    latest: dict[HistorySeries, dict[str, HistoryPoint]] = {each: {} for each in series}
    for point in history.points(series):
        if point.run.commit and not point.run.dirty:
            latest[point.series][point.run.commit] = point
    line = _commits_before(history, commit, work_tree(folder))
    found = {}
    for each, by_commit in latest.items():
        nearest = next((by_commit[commit] for commit in line if commit in by_commit), None)
        if nearest:
            found[each] = nearest
    return found


def compare_with_baseline(
    history: History,
    points: Sequence[HistoryPoint],
    *,
    folder: Path | str = ".",
    against: str = "",
    limit: Limit = NO_GROWTH,
) -> list[Comparison]:
    """Each of `points`, which are of one run, beside its baseline; where no commit before it is known, beside
    the one before it on its branch. Raises as `baseline_commit` does."""
    if not points:
        return []
    commit = baseline_commit(points[0].run, folder, against)
    base = baseline_points(history, [point.series for point in points], commit, folder)
    if not commit:
        base = {point.series: before for point in points if (before := _before(history, point))}
    return [Comparison(point, base.get(point.series), limit) for point in points]


def _before(history: History, point: HistoryPoint) -> HistoryPoint | None:
    """The point before `point` on its branch, by the times of the commits."""
    runs = history.runs(point.series.project)
    line = lines(in_order(history.points(point.series), runs), runs).get((point.run.branch, False), [])
    earlier = list(takewhile(lambda each: each.number != point.number, line))
    return earlier[-1] if earlier else None


def _commits_before(history: History, commit: str, top: Path | None) -> list[str]:
    line = [commit] if commit else []
    if top is not None and commit:
        try:
            line = ancestors(top, commit, MOST_COMMITS)
        except InputError:
            # Force-pushed away: the store may still know what was before it.
            line = [commit]
    parents = {run.commit: run.parent for run in history.runs() if run.commit}
    seen = set(line)
    while line and (parent := parents.get(line[-1], "")) and parent not in seen:
        line.append(parent)
        seen.add(parent)
    return line


def branch_of(folder: Path, head: str) -> str:
    """The branch that `head` names in the repository at `folder`; of a commit alone the target branch or what
    is checked out, whichever has it first, "" where neither does."""
    name = ask_git(folder, "rev-parse", "--symbolic-full-name", head)
    for kind in ("refs/heads/", "refs/remotes/origin/", "refs/remotes/"):
        if name.startswith(kind):
            return name.removeprefix(kind)
    with suppress(InputError):
        target = target_branch(folder)
        if target and is_ancestor(folder, head, target):
            return branch_of(folder, target)
    return current_branch(folder) if is_ancestor(folder, head, "HEAD") else ""
