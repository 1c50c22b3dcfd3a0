"""Stores of history, as pages open them: which there are, read as columns once for all sessions.

A visitor opens what whoever starts the server has named, what lies below its folder, and own uploads; nothing
else on this machine or in its network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from memplan_dashboard.session import documents, folder, uploads

from memplan_engine import MemplanError, open_history
from memplan_engine.diffing.regression import Limit
from memplan_engine.history.alarms import NO_GROWTH
from memplan_engine.history.courses import Course, courses
from memplan_engine.history.history_values import HistoryPoint
from memplan_engine.history.importing import SQLITE, is_store
from memplan_engine.history.point_columns import HistoryColumns
from memplan_engine.history.store_place import VARIABLE, find_store

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History

KIND = "history"
NAMED = "named"
"""The key of the store that the environment or the repository names begins so."""
SERVER_SECONDS = 10
"""What a server said is asked again after so long."""
MODES = slice(18, 20)
LOGGED, ROLLED_BACK = b"\2\2", b"\1\1"
"""How a file of SQLite is written and read, by the bytes in its head that say so."""
WAIT_SECONDS = 5.0
"""For a writer's turn: a page waits no longer."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where a store lies: `location` is a path or a URL, `label` what people are shown of it. `is_ours` says
    that who started the server named it: then what is acknowledged is written into it."""

    location: str
    label: str
    is_ours: bool

    @property
    def path(self) -> Path | None:
        """The file, None for a server."""
        return None if "://" in self.location else Path(self.location)

    @property
    def why_not_written(self) -> str:
        """Why nothing can be written into it; "" where it can."""
        if not self.is_ours:
            return "it was uploaded or lies in the folder: only a store that `memplan dashboard` was given is"
        if self.path is not None and not (
            os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        ):
            return "its file may only be read"
        return ""

    @property
    def version(self) -> tuple[int, ...]:
        """Changes when the store does."""
        if self.path is None:
            return (int(time.time()) // SERVER_SECONDS,)
        told: list[int] = []
        for path in (self.path, self.path.with_name(self.path.name + "-wal")):
            try:
                status = path.stat()
            except OSError:
                continue
            told += [status.st_mtime_ns, status.st_size]
        return tuple(told)


def catalogue() -> dict[str, str]:
    """All stores that can be chosen, key → label: the command line's, that of the environment or the
    repository, uploads, and those below the folder."""
    labels = documents.given_stores()
    if own := _named():
        labels[f"{NAMED}:{own.label}"] = own.label
    labels |= uploads.listed(KIND)
    for key, name in folder.listed().items():
        path = folder.find(key)
        if path is not None and is_store(path):
            labels[key] = name
    return labels


def place_of(key: str) -> StorePlace:
    """The store behind a key; raises InputError where there is none."""
    kind = key.partition(":")[0]
    if kind == NAMED and (own := _named()):
        return own
    path = documents.path_of(key)
    return StorePlace(str(path), path.name, kind == "file")


def _named() -> StorePlace | None:
    """The store of the environment, or of the repository in which the server was started."""
    return _found(os.environ.get(VARIABLE, ""), str(Path.cwd()))


@lru_cache(8)
def _named_location(variable: str, folder_name: str) -> str:
    try:
        return find_store(variable or None, folder=folder_name)
    except MemplanError:
        return ""


def _found(variable: str, folder_name: str) -> StorePlace | None:
    location = _named_location(variable, folder_name)
    if "://" in location:
        from memplan_engine.history.database.connecting import find_location

        place = find_location(location)
        location, label = (str(place.path), place.path.name) if place.path else (location, place.name)
        return StorePlace(location, label, is_ours=True)
    path = Path(folder_name, location)
    return StorePlace(str(path), path.name, is_ours=True) if location and path.is_file() else None


def check_store(key: str) -> None:
    """Raise MemplanError where what is behind `key` is no store."""
    read_columns(place_of(key))


def without_log(content: bytes) -> bytes:
    """The bytes of a store as of one that is not written to: SQLite then makes no files beside it."""
    is_written = content.startswith(SQLITE) and content[MODES] == LOGGED
    return content[: MODES.start] + ROLLED_BACK + content[MODES.stop :] if is_written else content


def read_columns(place: StorePlace) -> HistoryColumns:
    """All runs and points of a store as columns; raises MemplanError."""
    return _columns(place, place.version)


def read_courses(place: StorePlace, branch: str, limit: Limit = NO_GROWTH) -> list[Course]:
    """Every series that has points on `branch`, with what changed and is to be looked at; raises
    MemplanError."""
    return _courses(place, place.version, branch, limit)


@lru_cache(8)
def _latest(place: StorePlace, version: tuple[int, ...], project: str) -> tuple[HistoryPoint, ...]:
    with opened(place) as history:
        return tuple(history.latest_points(project))


def projects(place: StorePlace) -> tuple[str, ...]:
    """The projects that the store has series of, the one with the latest first; raises MemplanError."""
    return _projects(place, place.version)


@lru_cache(8)
def _projects(place: StorePlace, version: tuple[int, ...]) -> tuple[str, ...]:
    with opened(place) as history:
        return tuple(dict.fromkeys(each.project for each in reversed(history.series())))


def latest_points(place: StorePlace, project: str) -> tuple[HistoryPoint, ...]:
    """The latest point of each series of `project`; raises MemplanError."""
    return _latest(place, place.version, project)


def graph_json(place: StorePlace, digest: str) -> bytes:
    """The graph with `digest`, as memplan JSON; raises InputError where there is none."""
    with opened(place) as history:
        return history.graph_json(digest)


def forget(place: StorePlace) -> None:
    """Read all of it again: something was written."""
    if place.path is None:
        _columns.clear()
        _courses.clear()


# Half a million points take 40 MB.
@st.cache_resource(max_entries=4, show_spinner="Reading the history …")
def _columns(place: StorePlace, version: tuple[int, ...]) -> HistoryColumns:
    with opened(place) as history:
        return history.columns()


@st.cache_resource(max_entries=16, show_spinner="Reading the history …")
def _courses(place: StorePlace, version: tuple[int, ...], branch: str, limit: Limit) -> list[Course]:
    columns = _columns(place, version)
    with opened(place) as history:
        return courses(history, columns, columns.points, branch, limit)


@contextmanager
def opened(place: StorePlace, *, to_write: bool = False) -> Iterator[History]:
    """The store at `place`. Errors within say it as people know it, not where it lies on the server."""
    try:
        with open_history(place.location, read_only=not to_write, wait=WAIT_SECONDS) as history:
            yield history
    except MemplanError as error:
        raise MemplanError(str(error).replace(place.location, place.label)) from error
