"""Fixtures for tests that record scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memplan_engine.runtime.recorder import script_run
from tests.support.forked_scripts import ForkedScripts

START = script_run.start_module


@pytest.fixture(scope="session")
def script_server() -> Iterator[ForkedScripts]:
    """The process that forks those of scripts; it starts with the first of them."""
    server = ForkedScripts()
    yield server
    server.close()


@pytest.fixture
def forked_scripts(script_server: ForkedScripts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of recorded scripts and ranks from one that has imported torch."""
    monkeypatch.setattr(script_run, "start_module", script_server)


@pytest.fixture
def own_processes(forked_scripts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of recorded scripts as users' are started."""
    monkeypatch.setattr(script_run, "start_module", START)
