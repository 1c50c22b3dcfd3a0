"""Which series, which commit and which branch of a store are meant by what somebody typed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from memplan_engine.errors import InputError
from memplan_engine.history.git.git_commit import work_tree
from memplan_engine.history.git.git_history import commit_of
from memplan_engine.history.history_values import SHORT_HASH, HistorySeries

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History

MOST_NAMED = 8


def select_series(
    history: History, model: str = "", *, variant: str = "", project: str = "", strategy: str = ""
) -> list[HistorySeries]:
    """The series of `model` ("" for all), those with that `variant`, `project` and `strategy` where they are
    given.

    Raises
    ------
    InputError: there is none.
    """
    series = history.series(project or None)
    asked = (("model", model), ("variant", variant), ("strategy", strategy))
    found = [each for each in series if all(text in ("", getattr(each, name)) for name, text in asked)]
    if not found:
        told = ", ".join(f"{name} {text!r}" for name, text in (*asked, ("project", project)) if text)
        labels = sorted({each.label for each in series})
        more = f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else ""
        there = f"one of {', '.join(labels[:MOST_NAMED])}{more}" if labels else "one that was recorded"
        raise InputError(history.name, told, "no such series", there)
    return found


def select_commit(history: History, name: str) -> str:
    """The commit of a run of `history` whose hash begins with `name`, or which the repository
    calls `name`.

    Raises
    ------
    InputError: there is none, or several.
    """
    known = {run.commit for run in history.runs() if run.commit}
    commits = sorted(commit for commit in known if name and commit.startswith(name))
    if name in commits:
        return name
    if not commits and (top := work_tree()):
        with suppress(InputError):
            commits = [commit_of(top, name)]
        if not known.issuperset(commits):
            found = f"no such commit in it, {commits[0][:SHORT_HASH]}"
            raise InputError(history.name, f"commit {name!r}", found, "one that `memplan history log` tells")
    if len(commits) != 1:
        found = ", ".join(commit[:SHORT_HASH] for commit in commits[:MOST_NAMED]) or "no such commit"
        raise InputError(history.name, f"commit {name!r}", found, "a hash, or the beginning of just one")
    return commits[0]


def check_branch(history: History, series: Sequence[HistorySeries], branch: str) -> None:
    """Raise InputError where none of `series` was recorded on `branch`."""
    there = sorted({point.run.branch for point in history.points(series)})
    if branch not in there:
        more = f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else ""
        expected = f"one of {', '.join(map(repr, there[:MOST_NAMED]))}{more}"
        raise InputError(history.name, "", f"no such branch, {branch!r}", expected)


def last_branch(history: History, series: Sequence[HistorySeries], commit: str) -> str | None:
    """The branch on which `commit` was recorded last with one of `series`, None where it was not."""
    points = [point for point in history.points(series) if point.run.commit == commit and not point.run.dirty]
    return points[-1].run.branch if points else None
