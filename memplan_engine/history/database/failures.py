"""What databases complain of, as errors that say where, what was found, what was expected, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from memplan_engine.errors import InputError

NOTHING_WRITTEN = "nothing of what was to be recorded is in it"
_FULL = ("a disk that is full", f"room for what is written: free some and record again; {NOTHING_WRITTEN}")
_LOCKED = (
    "locked by another process",
    "to get its turn: end who holds it or wait for longer; " + NOTHING_WRITTEN,
)
_READ_ONLY = ("that it may only be read", "one that may be written to, or to be opened for reading only")
_DAMAGED = (
    "a database that is damaged",
    "a sound one: bring back a copy, or export what `sqlite3 FILE .recover` finds",
)
_FOREIGN = ("a file of something else", "a store of history, or a new name")
_UNREACHABLE = ("no answer from the server", "a server that runs, and lets this user in")
_SQLITE = {
    "SQLITE_FULL": _FULL,
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_PERM": _READ_ONLY,
    "SQLITE_NOTADB": _FOREIGN,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_IOERR": ("a disk that fails", f"one that can be read and written; {NOTHING_WRITTEN}"),
    "SQLITE_CANTOPEN": ("that it cannot be opened", "a folder and a file that may be read and written"),
}
"""By the first two words of SQLite's own names of errors."""
_POSTGRESQL = {
    "53100": _FULL,
    "53": ("a server without resources", f"one that takes more; {NOTHING_WRITTEN}"),
    "55P03": _LOCKED,
    "40": _LOCKED,
    "25006": _READ_ONLY,
    "42501": ("that this user may not", "a user who may make tables and write to them"),
    "28": ("that this user may not come in", "the name and the password of one who may"),
    "3D": ("no such database on the server", "one that is there: `createdb NAME` makes it"),
    "08": _UNREACHABLE,
    "57": _UNREACHABLE,
}
"""By SQLSTATE, or by its class."""


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Errors of a database become InputErrors that name the store.

    Raises
    ------
    InputError: whatever went wrong below.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise explanation(name, error) from error


def explanation(name: str, error: SQLAlchemyError | sqlite3.Error) -> InputError:
    """What `error` says of the store `name`."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    found, expected = _reason(cause) or (str(cause).partition("\n")[0], "a store that answers")
    return InputError(name, "", found, expected)


def _reason(cause: BaseException | None) -> tuple[str, str] | None:
    if isinstance(cause, sqlite3.Error):
        words = getattr(cause, "sqlite_errorname", "").split("_")
        return _SQLITE.get("_".join(words[:2]))
    state = getattr(cause, "sqlstate", None)
    if state:
        return _POSTGRESQL.get(state) or _POSTGRESQL.get(state[:2])
    # psycopg gives no state to what failed before there was a connection.
    text = str(cause)
    if "does not exist" in text and "database" in text:
        return _POSTGRESQL["3D"]
    if "authentication" in text or "role" in text:
        return _POSTGRESQL["28"]
    return _UNREACHABLE if "connect" in text else None
