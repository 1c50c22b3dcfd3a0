"""No process stays behind where the launcher, the server or a solver is ended, politely or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright")
from tests.dashboard.background.test_jobs import until
from tests.dashboard.background.test_jobs_browser import make_site, press, searching, solvers, until_some
from tests.support.browser import import_path, open_tab, reserved_port
from tests.support.dashboard_page import DashboardPage
from tests.support.processes import is_running
from tests.support.waiting import HANG_SECONDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc"),
]


@pytest.fixture
def launched(tmp_path):
    """The launcher, its address, and the folder that its solvers import from."""
    site = make_site(tmp_path)
    script = (
        "import sys; from memplan_dashboard import launch; "
        f"launch.STARTUP_SECONDS = {HANG_SECONDS}; sys.exit(launch.main())"
    )
    line = [sys.executable, "-c", script, "--no-browser", str(site / "hard.csv")]
    environment = {**os.environ, "PYTHONPATH": import_path(site), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with reserved_port() as port:
        launcher = subprocess.Popen([*line, f"--port={port}"], env=environment, stdout=subprocess.PIPE)
        assert b"Ctrl-C" in launcher.stdout.readline()
        yield launcher, f"http://127.0.0.1:{port}", site
        launcher.terminate()
        launcher.communicate(timeout=HANG_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("ended", ["launcher", "server"])
def test_no_process_stays_behind(launched, chromium, ended, number):
    launcher, url, site = launched
    page = searching(
        DashboardPage(open_tab(chromium, f"{url}/?strategy=slow_search&limit=600", 1280, 800, "light"))
    )
    ((solver, server),) = until_some(lambda: solvers(site).items(), 1)
    # A solver ignores Ctrl-C: its server decides.
    os.kill(solver, signal.SIGTERM if number == signal.SIGINT else number)
    page.page.get_by_text("Ended early after").wait_for()
    until(lambda: not solvers(site))
    press(page, "Keep solving")
    ((solver, _),) = until_some(lambda: solvers(site).items(), 1)
    page.tab.close()
    os.kill(launcher.pid if ended == "launcher" else server, number)
    launcher.wait(HANG_SECONDS)
    until(lambda: not is_running(server) and not is_running(solver) and not solvers(site))
