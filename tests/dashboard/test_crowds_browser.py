"""Sixteen people at once on two cores: nobody gets an error or a white page, and the server stays small."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright")
from benchmarks.dashboard_browser import write_csv
from tests import ROOT
from tests.dashboard.background.test_jobs_browser import make_site
from tests.support.browser import import_path, serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc"),
]
BROWSERS = 4
"""A Chromium each: one that draws all sixteen pages has them wait for each other."""
PEOPLE = ("/?doc=example:gpt2",) * 2 + ("/?doc=file:long.csv", "/?doc=file:hard.csv&strategy=search")
"""What the people of each browser have open."""
ACTIONS = 4
"""Of each person: 64 in all, beside as many solvers as there are cores."""


def server_of(url: str) -> Path:
    """The /proc folder of the process that serves `url`."""
    words = {b"memplan_dashboard.serving.server", f"--port={urlsplit(url).port}".encode()}
    (server,) = (folder for folder in Path("/proc").glob("[0-9]*") if words <= words_of(folder))
    return server


def words_of(process: Path) -> set[bytes]:
    try:
        return set((process / "cmdline").read_bytes().split(b"\0"))
    except OSError:
        return set()


def memory(server: Path, field: str) -> int:
    """Bytes: "VmRSS", what is resident now, or "VmHWM", the most that was."""
    return int((server / "status").read_text().partition(f"{field}:")[2].split()[0]) * 1024


def act(browsers: list[subprocess.Popen[str]], times: int) -> list[float]:
    """Everybody acts so many times; the seconds that each action took."""
    for browser in browsers:
        print(times, file=browser.stdin, flush=True)
    answers = [json.loads(browser.stdout.readline()) for browser in browsers]
    assert not [error for answer in answers for error in answer["errors"]]
    seconds = [each for answer in answers for each in answer["seconds"]]
    assert len(seconds) == times * len(PEOPLE) * BROWSERS
    return seconds


@pytest.fixture
def url(tmp_path):
    make_site(tmp_path)
    write_csv(tmp_path / "long.csv", 200_000, seed=1)
    with serve(ROOT / "dashboard" / "app.py", tmp_path / "long.csv", tmp_path / "hard.csv") as address:
        yield address


def test_sixteen_people_work_at_once(url):
    """How long they wait is printed, not held: the browsers and other tests take most of the cores."""
    server = server_of(url)
    crowd = [sys.executable, "-m", "tests.support.crowd", url, *PEOPLE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with ExitStack() as stack:
        browsers = [
            stack.enter_context(subprocess.Popen(crowd, cwd=ROOT, env=environment, **pipes))
            for _ in range(BROWSERS)
        ]
        act(browsers, 1)  # by then everything is open
        seconds = act(browsers, ACTIONS)
        for browser in browsers:
            browser.stdin.close()
    twentieths, most = statistics.quantiles(seconds, n=20), memory(server, "VmHWM")
    print(f"a click: median {twentieths[9]:.2f} s, 95 % within {twentieths[-1]:.2f} s")
    assert most < 1.5 * 1000**3
