"""What all tests of the dashboard share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memplan_engine import SolveLimits
from tests.support.waiting import HANG_SECONDS

NODES = 100_000
"""The limit of a page's first plan. `slow_search` counts a node each microsecond, so it stops after 0.1 s."""


@pytest.fixture(autouse=True)
def own_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test is a visitor of its own, whose uploads lie in a folder that goes with it."""
    pytest.importorskip("streamlit")
    from memplan_dashboard.session import uploads

    monkeypatch.setattr(uploads, "_store", lambda: tmp_path / "visitors")
    monkeypatch.setattr(uploads, "folder", lambda: tmp_path / "uploads")
    return tmp_path / "uploads"


@pytest.fixture(autouse=True)
def limits_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the searches of pages in nodes; only a hang reaches the limits in seconds."""
    pytest.importorskip("streamlit")
    from memplan_dashboard.background import jobs
    from memplan_dashboard.session import advising, plan_facts, scenarios

    def limits_for(document: object, strategy: str) -> SolveLimits:
        return SolveLimits(nodes=NODES if jobs.goes_on(strategy) else None)

    monkeypatch.setattr(plan_facts, "limits_for", limits_for)
    for module, name in (
        (plan_facts, "AUTO_SECONDS"),
        (scenarios, "FIT_SECONDS"),
        (scenarios, "SUGGEST_SECONDS"),
        (advising, "SECONDS"),
    ):
        monkeypatch.setattr(module, name, HANG_SECONDS)


@pytest.fixture(autouse=True)
def no_jobs_left() -> Iterator[None]:
    """End the jobs of the test, which would take the places of the next one's."""
    pytest.importorskip("streamlit")
    from memplan_dashboard.session import searches

    yield
    searches.scheduler().close()


@pytest.fixture(autouse=True)
def no_spare_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no process that loads torch with each page Run; `test_spare.py` tests it."""
    pytest.importorskip("streamlit")
    from memplan_dashboard.background.spare import Spare
    from memplan_dashboard.views.run import run_choices

    class NeverReady(Spare):
        def want(self, session: str) -> None:
            """Start nothing."""

    monkeypatch.setattr(run_choices, "Spare", NeverReady)


@pytest.fixture(autouse=True)
def advice_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for advice in `apptest.advised` only, instead of in a thread next to each page."""
    pytest.importorskip("streamlit")
    from memplan_dashboard.session import advising

    from tests.support import apptest

    apptest.ASKED.clear()
    monkeypatch.setattr(advising.Advising, "begin", lambda asked: apptest.ASKED.append(asked))
