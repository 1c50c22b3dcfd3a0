"""Stores of history in both databases: each test that asks for `location` is run on both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from memplan_engine.history.database.store import History
from memplan_engine.history.opening import open_history
from tests.support.postgresql import Server, find_server, serve_postgresql


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server, once a worker. Where CI=true a missing one is a failure, else a skip."""
    programs = find_server()
    if programs is None:
        reason = "no PostgreSQL server found: `make postgresql` installs one"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with serve_postgresql(programs) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store may be made."""
    if request.param == "sqlite":
        return str(tmp_path / "history.db")
    server: Server = request.getfixturevalue("postgresql")
    return server.new_database()


@pytest.fixture
def history(location: str) -> Iterator[History]:
    """An empty store."""
    with open_history(location) as store:
        yield store
