"""Where a store of history is opened: made where there is none, brought up to date where it is older."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History

WAIT_SECONDS = 30.0


def open_history(
    location: Path | str, *, read_only: bool = False, wait: float = WAIT_SECONDS, make: bool = True
) -> History:
    """Open the store at `location`, and make one where there is none.

    Parameters
    ----------
    location: a file, made by SQLite, or `postgresql://user@host/database`.
    read_only: look at it only, which files and folders allow that may not be written to; nothing is made.
    wait: seconds for which a writer waits for others.
    make: False for a store that has to be there.

    Raises
    ------
    InputError: a database of something else, one of a newer version, or one that is older and is only to be
    read; a place that cannot be written to, or has no store
    where none is to be made; a server that does not answer.
    MissingDependencyError: SQLAlchemy and Alembic, or for a server psycopg, are not installed.
    """
    try:
        import alembic  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ImportError:
        raise MissingDependencyError("SQLAlchemy and Alembic", "history", "a store of history") from None
    from memplan_engine.history.database.connecting import connect_to, find_location
    from memplan_engine.history.database.migrating import check_version, migrate
    from memplan_engine.history.database.store import History

    if not 0 <= wait <= 86_400:
        raise InputError(str(location), "wait", f"{wait} s", "0 to 86,400 s")
    place = find_location(location)
    engine = connect_to(place, read_only, wait, make)
    if read_only:
        check_version(engine, place.name)
    else:
        migrate(engine, place.name, make=make)
    return History(engine, place.name, read_only)
