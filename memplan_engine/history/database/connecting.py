"""Connections to a store: SQLite in a file, with several writers at once, or PostgreSQL by its URL."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.system import write_target

WAIT_SECONDS = 30.0
"""How long a writer waits for its turn."""
MAKES = "`memplan history record` makes one"
_PAUSE_SECONDS = 0.02
APPLICATION = 0x6D706C68
"""What SQLite writes into the head of a file of ours: "mplh"."""
_UNREADABLE = {"SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_IOERR", "SQLITE_FULL"}
"""Where the file beside a store that has a log cannot be made; the last two on a full disk."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store is: a `path`, or a `url` of PostgreSQL. `name` is what people are shown: no password."""

    name: str
    path: Path | None = None
    url: URL | None = None


def find_location(text: Path | str) -> Location:
    """What `text` names: a file, as a path or as `sqlite:///path`, or `postgresql://user@host/database`.

    Raises
    ------
    InputError: a URL of something else, or one that is none.
    """
    if isinstance(text, Path) or "://" not in text:
        return Location(str(text), Path(text))
    expected = "a path, sqlite:///path, or postgresql://user@host/database"
    try:
        url = make_url(text)
    except ArgumentError:
        raise InputError("store", "", "a broken URL", expected) from None
    kind = url.drivername.partition("+")[0]
    if kind == "sqlite" and url.database and not url.query:
        return Location(url.database, Path(url.database))
    if kind in ("postgresql", "postgres"):
        shown = url.set(drivername="postgresql").render_as_string(hide_password=True)
        return Location(shown, url=url.set(drivername="postgresql+psycopg"))
    raise InputError("store", "", f"{url.render_as_string(hide_password=True)!r}", expected)


def connect_to(location: Location, read_only: bool, wait: float, make: bool = True) -> Engine:
    """An engine for the store at `location`, whose writers wait up to `wait` seconds for each other; without
    `make` its file has to be there.

    Raises
    ------
    InputError: a folder that does not exist or takes no files, or no such file.
    MissingDependencyError: psycopg is not installed.
    """
    if location.path is None:
        return _postgresql(location, read_only, wait)
    if (read_only or not make) and not location.path.exists():
        raise InputError(location.name, "", "no such file", f"a store of history: {MAKES}")
    if not read_only:
        write_target(location.path)
    files = _Files(location.path, read_only, wait)
    engine = create_engine("sqlite://", creator=files.connect, poolclass=NullPool)
    event.listen(engine, "begin", _begin)
    return engine


def for_writing(engine: Engine) -> Engine:
    """The same engine, whose transactions are those of a writer from their beginning."""
    return engine.execution_options(memplan_writes=True)


def is_sqlite(connection: Connection | Engine) -> bool:
    """Whether it is SQLite behind it."""
    return connection.dialect.name == "sqlite"


def _begin(connection: Connection) -> None:
    # Python would begin late, and as a reader: two of those who then want to write are at a deadlock, which
    # SQLite ends at once, however long they would wait.
    writes = connection.get_execution_options().get("memplan_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(location: Location, read_only: bool, wait: float) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingDependencyError("psycopg", "postgresql", "a store in PostgreSQL") from None
    assert location.url is not None
    options = f"-c lock_timeout={int(wait * 1000)} -c timezone=UTC"
    if read_only:
        options += " -c default_transaction_read_only=on"
    arguments: dict[str, Any] = {"options": options, "connect_timeout": max(2, int(wait))}
    return create_engine(location.url, connect_args=arguments, poolclass=NullPool)


@dataclass(slots=True)
class _Files:
    """Opens the file of a store, and its log of what was written last."""

    path: Path
    read_only: bool
    wait: float
    _copy: tempfile.TemporaryDirectory[str] | None = None
    _copied: tuple[object, ...] = field(default=())

    def connect(self) -> sqlite3.Connection:
        if not self.read_only:
            connection = self._open(self.path, "rwc")
            self._use_log(connection)
            return connection
        # Where nothing may be written, SQLite cannot read a store that has a log: readers and writers meet in
        # a file beside it. Without a log there are no writers, and nothing will change.
        try:
            return self._checked(self._open(self.path, "ro"))
        except sqlite3.OperationalError as error:
            if "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2]) not in _UNREADABLE:
                raise
        log = self.path.with_name(self.path.name + "-wal")
        if log.exists() and log.stat().st_size:
            return self._checked(self._open(self._copy_with(log), "rw"))
        return self._checked(self._open(self.path, "ro", "&immutable=1"))

    def _copy_with(self, log: Path) -> Path:
        state = tuple((each.stat().st_mtime_ns, each.stat().st_size) for each in (self.path, log))
        if self._copy is None or self._copied != state:
            self._copy = tempfile.TemporaryDirectory(prefix="memplan-history-")
            for each in (self.path, log):
                copyfile(each, Path(self._copy.name) / each.name)
            self._copied = state
        return Path(self._copy.name) / self.path.name

    def _open(self, path: Path, mode: str, more: str = "") -> sqlite3.Connection:
        # Paths may have ? and %, which mean something else in a URI.
        uri = f"file:{quote(str(path.absolute()))}?mode={mode}{more}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self.wait, isolation_level=None, check_same_thread=False
        )
        # A file may come from anybody: its views and triggers call nothing. What is committed is on the disk.
        for pragma in ("foreign_keys=ON", "trusted_schema=OFF", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    @staticmethod
    def _checked(connection: sqlite3.Connection) -> sqlite3.Connection:
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Readers go on while somebody writes. Where a file system has no shared memory, they take turns."""
        until = time.monotonic() + self.wait
        try:
            while True:
                # The wait that was asked for does not hold here: whoever comes second is told so at once.
                try:
                    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                        return
                    if _belongs_to_others(connection):
                        return
                    connection.execute("PRAGMA journal_mode=WAL")
                    return
                except sqlite3.OperationalError as error:
                    busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
                    if not busy or time.monotonic() > until:
                        raise
                time.sleep(_PAUSE_SECONDS)
        except sqlite3.Error:
            connection.close()
            raise


def _belongs_to_others(connection: sqlite3.Connection) -> bool:
    """Whether the file is somebody else's: then not a byte of it changes."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(tables) and application != APPLICATION
