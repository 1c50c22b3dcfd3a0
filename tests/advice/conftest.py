"""Fixtures shared by all tests of advice."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.support.waiting import HANG_SECONDS


@pytest.fixture(autouse=True)
def limits_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only a hang reach the default limits: every search here ends with a proof in milliseconds."""
    for module, name in (("advise", "DEFAULT_SECONDS"), ("fit_stages", "STAGE_SECONDS")):
        monkeypatch.setattr(import_module(f"memplan_engine.advice.{module}"), name, HANG_SECONDS)
