"""Somebody's word that the change of a commit is meant, in each series that it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memplan_engine.errors import InputError
from memplan_engine.history.changes import HistoryChange, history_changes
from memplan_engine.history.history_values import SHORT_HASH, Acknowledgement, HistorySeries

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History


def acknowledge_commit(
    history: History, series: Sequence[HistorySeries], commit: str, reason: str, author: str = ""
) -> list[HistoryChange]:
    """Acknowledge what changed with `commit` in each of `series` where something did; the changes.

    Raises
    ------
    InputError: nothing changed with it.
    """
    runs = history.runs()
    changes = [
        change
        for each in series
        for change in history_changes(
            history.points(each), [run for run in runs if run.project == each.project]
        )
        if change.after.run.commit == commit
    ]
    if not changes:
        expected = "a commit with which memory changed: `memplan history blame` tells them"
        raise InputError(history.name, f"commit {commit[:SHORT_HASH]}", "no change", expected)
    for each in dict.fromkeys(change.after.series for change in changes):
        history.acknowledge(Acknowledgement(each, commit, reason, author))
    return changes


def acknowledged(
    history: History, series: Sequence[HistorySeries], commit: str
) -> dict[HistorySeries, Acknowledgement]:
    """What was said of `commit`, by those of `series` of which something was."""
    return {
        word.series: word
        for word in history.acknowledgements()
        if word.commit == commit and word.series in series
    }


def withdraw(history: History, series: Sequence[HistorySeries], commit: str) -> list[Acknowledgement]:
    """Take back what was said of `commit` in each of `series`; what it was.

    Raises
    ------
    InputError: nothing was.
    """
    said = acknowledged(history, series, commit)
    if not said:
        expected = "one that `memplan history blame` calls acknowledged"
        raise InputError(
            history.name, f"commit {commit[:SHORT_HASH]}", "a change that nobody acknowledged", expected
        )
    for each in said:
        history.withdraw(each, commit)
    return list(said.values())
