"""Which store is meant where nobody names one."""

from __future__ import annotations

import os
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.history.git.git_commit import work_tree

VARIABLE = "MEMPLAN_HISTORY"
"""The variable of the environment that names a store."""
FACTORIES = "MEMPLAN_FACTORIES"
"""The variable that names the factories, one a line, with which the dashboard may run a bisection."""
PLACE = Path(".memplan") / "history.db"
"""In the work tree of a repository."""
_IGNORED = "# A store of history is no part of what it tells about.\n*\n"


def find_store(given: str | None = None, *, to_write: bool = False, folder: Path | str = ".") -> str:
    """The store that is `given`; else what MEMPLAN_HISTORY names, else `.memplan/history.db` in the work tree
    around `folder`, whose folder is made where it is `to_write`.

    Raises
    ------
    InputError: none is named, and there is no repository; a folder that cannot be made.
    """
    named = given or os.environ.get(VARIABLE)
    if named:
        return named
    top = work_tree(folder)
    if top is None:
        expected = f"--store FILE, {VARIABLE}, or a repository, which has it in {PLACE}"
        raise InputError("history", "", "no such store: this is no git repository", expected)
    if to_write:
        _make(top / PLACE.parent)
    return str(top / PLACE)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
        ignored = folder / ".gitignore"
        if not ignored.exists():
            ignored.write_text(_IGNORED)
    except OSError as error:
        raise InputError(str(folder), "", f"{error.strerror!r}", "a folder that may be made") from None
