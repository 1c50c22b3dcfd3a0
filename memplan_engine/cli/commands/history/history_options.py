"""The options that the verbs of `memplan history` share, and the store that they open."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan_engine.diffing.regression import Limit, parse_limit
from memplan_engine.errors import InputError
from memplan_engine.history.alarms import NO_GROWTH, Watched, watch_series
from memplan_engine.history.git.git_commit import current_branch, work_tree
from memplan_engine.history.git.git_history import known_commit
from memplan_engine.history.history_values import HistorySeries
from memplan_engine.history.opening import open_history
from memplan_engine.history.selecting import check_branch
from memplan_engine.history.store_place import find_store
from memplan_engine.system import write_atomically

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History

MOST_DIGITS = 11
"""Of seconds since 1970: the year 5138."""
STORE = Annotated[
    str | None,
    typer.Option(
        help="A file, or postgresql://user@host/database (default: MEMPLAN_HISTORY, else .memplan/history.db "
        "in the repository).",
        show_default=False,
        metavar="STORE",
    ),
]
MODEL = Annotated[str, typer.Argument(help="A model of the store (default: all)", show_default=False)]
VARIANT = Annotated[str, typer.Option(help="Only this variant.", show_default=False)]
PROJECT = Annotated[
    str, typer.Option(help="The project (default: as the repository is called).", show_default=False)
]
OF_PROJECT = Annotated[str, typer.Option(help="Only this project.", show_default=False)]
OF_STRATEGY = Annotated[str, typer.Option(help="Only what this strategy planned.", show_default=False)]
BRANCH = Annotated[
    str | None,
    typer.Option(
        help="The branch (default: the one checked out, else the one recorded last).", show_default=False
    ),
]
COMMIT_NAME = Annotated[
    str, typer.Option("--commit", help="The commit (default: what is checked out).", show_default=False)
]
BRANCH_NAME = Annotated[
    str, typer.Option("--branch", help="Its branch (default: as git says).", show_default=False)
]
TIME = Annotated[
    str, typer.Option("--time", help="When it was made (default: as git says).", show_default=False)
]
LIMIT = Annotated[
    str | None,
    typer.Option(help="Growth that is allowed: 5%, 10MiB or bytes (default: none).", show_default=False),
]
FAIL_ON_GROWTH = Annotated[
    bool, typer.Option("--fail-on-growth", help="Exit code 1 where memory grew beyond --limit.")
]
AGAINST = Annotated[
    str,
    typer.Option(
        help="The branch to compare with, at the last commit in common (default: the target of the pull "
        "request, else the main branch).",
        show_default=False,
    ),
]
ROWS = Annotated[int, typer.Option("-n", "--rows", min=1, help="How many rows to show.")]


def opened_to_read(store: str | None) -> History:
    """The store that is meant, for reading."""
    return open_history(find_store(store), read_only=True)


def opened_to_write(store: str | None, make: bool = True) -> History:
    """The store that is meant, made where there is none, unless it has to be there."""
    return open_history(find_store(store, to_write=make), make=make)


def commit_named(commit: str) -> str:
    """The hash of what `--commit` names, "" where it names nothing; without a repository it is as given.

    Raises
    ------
    InputError: a repository without that commit, or without any.
    """
    top = work_tree()
    if top is None:
        return commit
    named = known_commit(top, commit or "HEAD")
    return named if commit else ""


def limit_of(limit: str | None) -> Limit:
    """What `--limit` allows."""
    return NO_GROWTH if limit is None else parse_limit(limit, "--limit")


def watched_series(
    history: History, series: Sequence[HistorySeries], branch: str | None, limit: Limit
) -> list[Watched]:
    """`series` on `branch`; where none is given on the one that is checked out, else the one recorded last.

    Raises
    ------
    InputError: nothing was recorded on `branch`.
    """
    if branch is not None:
        check_branch(history, series, branch)
    usual = current_branch() if work_tree() else ""
    return watch_series(history, series, branch=branch, usual=usual, limit=limit)


def fail_on_growth(asked: bool, watched: Sequence[Watched]) -> None:
    """End with exit code 1 where one of `watched` grew, and that is asked for."""
    if asked and any(each.alarming for each in watched):
        raise typer.Exit(1)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    write_atomically(path, text.encode("utf-8", "surrogatepass"))


def only_model(series: Sequence[HistorySeries], name: str) -> None:
    """Raise InputError where `series`, of the store `name`, are of several models and none is chosen."""
    models = sorted({each.model for each in series})
    if len(models) > 1:
        raise InputError(name, "MODEL", "none named", f"one of {', '.join(models)}")


def only_one(names: list[str], place: str) -> None:
    """Raise InputError where several are meant and one is needed."""
    if len(names) > 1:
        raise InputError(
            "history", place, ", ".join(names[:4]), "one: --variant and --strategy tell them apart"
        )


def seconds_of(text: str, option: str = "--time") -> int:
    """A time such as 2024-05-02, 2024-05-02T10:00:00+02:00 or 1714636800 in seconds since 1970; UTC unless it
    says otherwise.

    Raises
    ------
    InputError: anything else.
    """
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        if seconds >= 0:
            return seconds
    except (ValueError, OverflowError):
        pass
    raise InputError(option, "", repr(text), "a time since 1970, as 2024-05-02T10:00:00, or its seconds")
