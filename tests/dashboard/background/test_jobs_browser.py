"""Searches in the background as people meet them: a live curve, cancel, closing the tab, two at a time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("playwright")
from memplan_engine import write_csv
from tests import ROOT
from tests.dashboard.background.test_jobs import is_running, until
from tests.dashboard.test_dashboard_browser import NAMELESS, OVERFLOWING
from tests.support.browser import serve
from tests.support.buffer_list import hard_list
from tests.support.dashboard_page import DashboardPage
from tests.support.slow_strategies import FINISH, write_distribution

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc")
CURVE = """() => {
    const plot = document.querySelector('[data-testid="stPopoverBody"] .js-plotly-plot');
    return plot?.data ? [plot.data[1].x.at(-1), plot.data[1].x.length] : [0, 0];
}"""


def make_site(folder):
    """A folder with the slow strategies' distribution, and two hard files."""
    write_distribution(folder)
    rng = np.random.default_rng(5)
    for name in ("hard", "other"):
        write_csv(hard_list(rng), folder / f"{name}.csv")
    return folder


def served(site):
    files = (site / "hard.csv", site / "other.csv")
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
    page.page.get_by_text("Searching:").wait_for(timeout=120_000)
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


def test_the_curve_moves_the_chart_stays_until_the_end_and_then_nobody_asks(dashboard, site):
    (site / "finish").unlink(missing_ok=True)
    page = searching(dashboard("/?strategy=late_proof&doc=example:gpt2"))
    view, arena = page.data("view"), page.metric("Arena")
    until(lambda: curve(page)[1] > 3)
    moves(page)
    assert (page.data("view"), page.metric("Arena")) == (view, arena)
    (site / "finish").touch()
    page.page.get_by_text("Proved optimal for").wait_for(timeout=120_000)
    page.drawn("view", view, other=True)
    page.eventually(lambda: page.metric("Arena"), "51 MiB")
    page.eventually(lambda: panel(page).get_by_role("button").count(), 1)
    assert "Progress" in panel(page).get_by_role("button").inner_text()
    until(lambda: not solvers(site))
    last = curve(page)
    page.page.wait_for_timeout(1500)
    assert curve(page) == last


def test_cancel_gives_the_best_so_far_and_keep_solving_goes_on(dashboard, site):
    page = searching(dashboard("/?strategy=slow_search"))
    arena, view = page.metric("Arena"), page.data("view")
    until(lambda: curve(page)[1] > 3)
    press(page, "Show the best so far")
    page.eventually(lambda: page.metric("Arena") != arena, True)
    page.drawn("view", view, other=True)
    moves(page)
    press(page, "Cancel")
    page.page.get_by_text("Cancelled after").wait_for()
    assert not solvers(site)
    press(page, "Keep solving")
    searching(page)
    moves(page)
    assert len(solvers(site)) == 1


def test_closing_a_tab_ends_its_search_and_no_other(dashboard, site):
    one = searching(dashboard("/?strategy=slow_search&doc=file:hard.csv"))
    (first,) = until_some(lambda: set(solvers(site)), 1)
    narrow = {"width": 800, "height": 1000, "scheme": "dark"}
    other = searching(dashboard("/?strategy=slow_search&doc=file:other.csv", **narrow))
    (second,) = until_some(lambda: set(solvers(site)) - {first}, 1)
    moves(one)
    moves(other)
    assert other.page.evaluate(OVERFLOWING) == [0, [], []]
    assert other.page.evaluate(NAMELESS) == []
    one.tab.close()
    until(lambda: set(solvers(site)) == {second})
    moves(other)


def test_a_page_that_is_loaded_again_goes_on_with_its_search(dashboard, site):
    page = searching(dashboard("/?strategy=slow_search&doc=file:other.csv"))
    (solver,) = until_some(lambda: set(solvers(site)), 1)
    until(lambda: curve(page)[1] > 5)
    improved = curve(page)[1]
    page.page.reload()
    searching(page)
    until(lambda: curve(page)[1] >= improved)
    moves(page)
    assert set(solvers(site)) == {solver}


def until_some(look, count):
    until(lambda: len(look()) == count)
    return look()


def test_ctrl_c_on_the_server_leaves_no_process(tmp_path, open_page):
    site = make_site(tmp_path)
    with served(site) as url:
        page = searching(DashboardPage(open_page(f"{url}/?strategy=slow_search")))
        ((solver, server),) = until_some(lambda: solvers(site).items(), 1)
        page.tab.close()
        os.kill(server, signal.SIGINT)
        until(lambda: not is_running(server) and not is_running(solver), 5)
