"""Searches in the background as people meet them: a live curve, cancel, closing the tab, two at a time."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("playwright")
pytest.importorskip("websockets")
from memplan_dashboard.serving.door import VISITOR_COOKIE

from memplan_engine import write_csv
from tests import ROOT
from tests.dashboard.background.test_jobs import PROBLEM, until
from tests.support.browser import serve
from tests.support.buffer_list import hard_list
from tests.support.dashboard_page import DashboardPage
from tests.support.page_socket import PageSocket, texts
from tests.support.slow_strategies import FINISH, write_distribution

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
    pytest.mark.browser,
]
CURVE = """() => {
    const plot = document.querySelector('[data-testid="stPopoverBody"] .js-plotly-plot');
    return plot?.data ? [plot.data[1].x.at(-1), plot.data[1].x.length] : [0, 0];
}"""


GRACE = """
import sys
from pathlib import Path

if "memplan_dashboard.serving.server" in sys.orig_argv:
    from memplan_dashboard.background import scheduler

    class Grace:
        def __lt__(self, seconds):
            if seconds <= 0:
                return False
            Path({site!r}, "gone").touch()
            return Path({site!r}, "end").exists()

    scheduler.GRACE_SECONDS = Grace()
"""
"""A sitecustomize: there is a file `gone` once a session with a job is gone, whose job goes on until there is
a file `end`."""


def make_site(folder):
    """Return a folder with the slow strategies' distribution, two hard files and an easy one."""
    write_distribution(folder)
    (folder / "sitecustomize.py").write_text(GRACE.format(site=str(folder)))
    rng = np.random.default_rng(5)
    for name, problem in (("hard", hard_list(rng)), ("other", hard_list(rng)), ("easy", PROBLEM)):
        write_csv(problem, folder / f"{name}.csv")
    return folder


def served(site):
    files = (site / f"{name}.csv" for name in ("hard", "other", "easy"))
    return serve(ROOT / "dashboard" / "app.py", *files, paths=(site,))


def solvers(site):
    """The solver processes, id → parent, that import from `site`: those of its server, and orphans."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = ((folder / name).read_bytes() for name in ("cmdline", "environ"))
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if (
            b"memplan_dashboard.background.solver_process" in command
            and bytes(site) in environment
            and state not in "ZX"
        ):
            found[int(folder.name)] = int(parent)
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return make_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def url(site):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FINISH, str(site / "finish"))
        with served(site) as address:
            yield address


@pytest.fixture
def dashboard(url, open_page):
    return lambda address="/", **options: DashboardPage(open_page(url + address, **options))


def searching(page):
    page.page.get_by_text("Searching:").wait_for()
    return page


def panel(page):
    return page.page.locator(".st-key-search")


def curve(page):
    """Where the curve of the best arena ends, in seconds, and how many points it has."""
    if not page.page.locator("[data-testid=stPopoverBody]").count():
        panel(page).get_by_role("button", name="Progress").click()
    return page.page.evaluate(CURVE)


def moves(page):
    """Wait until the curve has gone on."""
    before = curve(page)[0]
    until(lambda: curve(page)[0] > before)


def press(page, name):
    page.page.get_by_role("button", name=name).click()
    page.settled()


def test_a_search_is_watched_cancelled_and_goes_on_to_its_proof(dashboard, site):
    (site / "finish").unlink(missing_ok=True)
    page = searching(dashboard("/?strategy=late_proof&doc=file:easy.csv&limit=600"))
    view, arena = page.data("view"), page.metric("Arena")
    until(lambda: curve(page)[1] > 3)
    moves(page)
    assert (page.data("view"), page.metric("Arena")) == (view, arena)
    press(page, "Show the best so far")
    page.eventually(lambda: page.metric("Arena") != arena, True)
    page.drawn("view", view, other=True)
    press(page, "Cancel")
    page.page.get_by_text("Cancelled after").wait_for()
    until(lambda: not solvers(site))
    press(page, "Keep solving")
    searching(page)
    moves(page)
    assert len(solvers(site)) == 1
    (site / "finish").touch()
    page.page.get_by_text("Proved optimal for").wait_for()
    page.eventually(lambda: page.metric("Arena"), "192 B")
    page.eventually(lambda: panel(page).get_by_role("button").count(), 1)
    assert "Progress" in panel(page).get_by_role("button").inner_text()
    until(lambda: not solvers(site))


def until_some(look, count):
    until(lambda: len(look()) == count, look=look)
    return look()


def visitor():
    """The cookie of another browser."""
    return f"{VISITOR_COOKIE}={secrets.token_urlsafe(32)}"


def automatic(messages):
    """Return whether the page is to run again without a click."""
    return any(message.WhichOneof("type") == "auto_rerun" for message in messages)


def test_sessions_side_by_side_end_with_their_tabs_or_go_on_when_loaded_again(url, site):
    for name in ("gone", "end"):
        (site / name).unlink(missing_ok=True)
    cookie = visitor()
    with PageSocket(url, visitor()) as one:
        assert automatic(one.run("strategy=slow_search&doc=file:hard.csv&limit=600"))
        (first,) = until_some(lambda: set(solvers(site)), 1)
        with PageSocket(url, cookie) as other:
            other.run("strategy=slow_search&doc=file:other.csv&limit=600")
            (second,) = until_some(lambda: set(solvers(site)) - {first}, 1)
        until((site / "gone").exists)
        again = PageSocket(url, cookie)
        sent = again.run("strategy=slow_search&doc=file:other.csv&limit=600")
        assert any("Searching:" in text for text in texts(sent))
        assert set(solvers(site)) == {first, second}
    (site / "end").touch()
    until(lambda: set(solvers(site)) == {second}, look=lambda: (solvers(site), first, second))
    again.close()
    until(lambda: not solvers(site))


def test_a_page_whose_search_has_ended_runs_by_itself_no_more(url, site):
    (site / "finish").touch()
    with PageSocket(url) as page:
        sent = page.run("strategy=late_proof&doc=file:easy.csv")
        while not any("Proved optimal for" in text for text in texts(sent)):
            sent = page.run("strategy=late_proof&doc=file:easy.csv")
        assert not automatic(sent)
    until(lambda: not solvers(site))
