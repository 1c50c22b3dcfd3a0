"""Sixteen people at once on two cores: no page shows an error or stays white."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
from tests import ROOT
from tests.support.browser import find_chromium, serve
from tests.support.crowd import BROWSERS, PEOPLE, crowd, write_files

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.timeout(1500),
]
ACTIONS = 2
"""Actions of each person: 32 in all, next to as many solvers as there are cores."""


def test_sixteen_people_work_at_once(tmp_path):
    """`benchmarks/dashboard_crowd.py` measures how long they wait, and the server's memory."""
    assert find_chromium(), "no Chromium found: `make browser` installs one"
    with (
        serve(ROOT / "dashboard" / "app.py", *write_files(tmp_path)) as url,
        crowd(url) as act,
    ):
        act(1)  # by then everything is open
        assert len(act(ACTIONS)) == ACTIONS * BROWSERS * len(PEOPLE)
