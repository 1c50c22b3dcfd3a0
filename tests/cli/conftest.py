"""Time limits of searches that only a hang reaches."""

from __future__ import annotations

import pytest

from tests.support.waiting import HANG_SECONDS

LIMITS = (
    "cli.options.DEFAULT_SECONDS",
    "cli.commands.report_command.COMPARED_SECONDS",
    "cli.commands.what_if_command.DECIDING_SECONDS",
    "cli.commands.what_if_command.DEFAULT_SECONDS",
    "planner.DEFAULT_SECONDS",
    "rewrites.order.reorder.DEFAULT_SECONDS",
    "rewrites.reuse.transform.QUICK_SECONDS",
    "symbolic.one_symbol.QUICK_SECONDS",
)


@pytest.fixture(autouse=True)
def patient_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each search end by itself, also on a machine that has little time for it."""
    for name in LIMITS:
        monkeypatch.setattr(f"memplan_engine.{name}", HANG_SECONDS)
