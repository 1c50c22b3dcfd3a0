"""Sixteen people at once on two cores: nobody gets an error or a white page, and the server stays small."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright")
from tests import ROOT
from tests.support.browser import find_chromium, serve
from tests.support.crowd import BROWSERS, PEOPLE, crowd, write_files
from tests.support.processes import memory, server_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc"),
]
ACTIONS = 2
"""Of each person: 32 in all, beside as many solvers as there are cores."""


@pytest.mark.quarantine
def test_sixteen_people_work_at_once(tmp_path):
    """How long they wait `benchmarks/dashboard_crowd.py` says: here other tests take half of the cores."""
    assert find_chromium(), "no Chromium found: `make browser` installs one"
    with serve(ROOT / "dashboard" / "app.py", *write_files(tmp_path)) as url:
        with crowd(url) as act:
            act(1)  # by then everything is open
            assert len(act(ACTIONS)) == ACTIONS * BROWSERS * len(PEOPLE)
        assert memory(server_of(url), "VmHWM") < 1.5 * 1000**3
