"""Fixtures shared by all tests: the command line, the browser, and the dashboard it looks at."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from memplan_engine.cli import app as command_line
from memplan_engine.kernels.jit import compiled_only
from tests import ROOT
from tests.support.browser import FLAGS, Tab, find_chromium, open_tab, serve
from tests.support.buffer_list import BUFFERS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

# Thousands of tests are collected beside torch, transformers and Streamlit: to go through all of these for
# garbage time and again is a quarter of the collection.
gc.set_threshold(50_000, 20, 20)

# `make test` draws the same few examples each time; `make test-slow` draws many, others each time.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=25, derandomize=True, **UNTIMED)
settings.register_profile("thorough", max_examples=300, print_blob=True, **UNTIMED)
settings.load_profile("quick")

# IPython reads the encoding of the original standard input, which is None where that was closed.
if sys.__stdin__ is None:
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BytesIO(), "utf-8")  # type: ignore[misc]

# Where these are set, rich takes every stream for a terminal, or none.
for variable in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(variable, None)

# A shell that starts the suite in the background has SIGINT ignored, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--shuffle-files SEED`, which `scripts/flaky.sh` uses."""
    parser.addoption("--shuffle-files", type=int, metavar="SEED", help="run the files in another order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that drive a browser and put them last; the files with most tests come first."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    counts = Counter(item.path for item in items)
    files = sorted(counts, key=counts.__getitem__, reverse=True)
    if (seed := config.getoption("shuffle_files")) is not None:
        random.Random(seed).shuffle(files)
    places = {path: place for place, path in enumerate(files)}
    items.sort(key=lambda item: (item.get_closest_marker("browser") is not None, places[item.path]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Close the browser before a test that drives none, see `Chromium`."""
    if item.get_closest_marker("browser") is None:
        CHROMIUM.close()


def pytest_unconfigure() -> None:
    """Close the browser."""
    CHROMIUM.close()


def pytest_collection_finish() -> None:
    """What is there now stays to the end."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def machine_code() -> Iterator[None]:
    """Tests of kernels are about what is compiled; `test_tiers` holds the interpreted ones against that."""
    with compiled_only():
        yield


class Chromium:
    """A headless Chromium, launched when a test first needs it and kept for the tests after it.

    `context` keeps Streamlit's scripts compiled, which is most of what a page costs. While Playwright runs,
    its event loop counts as running in this thread, so that `asyncio.run` fails: `close` ends it.
    """

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()
        self.browser: Browser | None = None
        self.context: BrowserContext | None = None

    def launch(self) -> Browser:
        """Return the browser. Where CI=true a missing one is a failure, else a skip."""
        if self.browser is None:
            path = find_chromium()
            if path is None:
                reason = "no Chromium found: `make browser` installs one, or set MEMPLAN_CHROMIUM"
                if os.environ.get("CI") == "true":
                    pytest.fail(reason)
                pytest.skip(reason)
            from playwright.sync_api import sync_playwright

            playwright = self._running.enter_context(sync_playwright())
            # Playwright makes a new user folder for each launch and removes it.
            self.browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
            self._running.callback(self.browser.close)
            self.context = self.browser.new_context()
            self.context.new_page()  # What is cached stays only while a page is open.
        return self.browser

    def close(self) -> None:
        """End the browser and Playwright, if they run."""
        self.browser = self.context = None
        self._running.close()


CHROMIUM = Chromium()


@pytest.fixture
def chromium() -> Browser:
    """The browser of this worker, which all its browser tests share."""
    return CHROMIUM.launch()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Tab]]:
    """`open_page(url, width=1280, height=800, scheme="light")` gives a Tab, whose errors fail the test.

    A second page of one test is in a context of its own: it is another browser's.
    """
    tabs: list[Tab] = []

    def open_one(url: str, *, width: int = 1280, height: int = 800, scheme: str = "light") -> Tab:
        context = None if tabs else CHROMIUM.context
        tabs.append(open_tab(chromium, url, width, height, scheme, context))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.close()
    errors = [error for tab in tabs for error in tab.errors]
    foreign: set[Any] = {host for tab in tabs for host in tab.foreign_hosts}
    assert not errors, f"the browser complained: {errors}"
    assert not foreign, f"the page asked other hosts than its own: {foreign}"


@pytest.fixture(scope="session")
def dashboard_url() -> Iterator[str]:
    """The address of the real dashboard, served once for all tests (once a worker)."""
    with serve(ROOT / "dashboard" / "app.py") as url:
        yield url


@pytest.fixture
def memplan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """`memplan("plan", …)` gives (exit code, stdout, stderr) in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_line, "on_first_compilation", lambda tell: None)
    (tmp_path / "list.csv").write_text(BUFFERS)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = command_line.run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run
