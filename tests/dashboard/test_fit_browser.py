"""The page Fit in a real browser: it answers by itself, goes on over a reload, is cancelled, and narrow pages
have no second scroll bar."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
from memplan_engine.formats.memplan_json.json_file import write_json
from tests import ROOT
from tests.rewrites.order_graphs import layered_graph
from tests.support.browser import serve
from tests.support.dashboard_page import DashboardPage

ANSWER = "Fits in 505 MiB: another order of the ops, 474.71 MiB state + 27 MiB arena"
BARS = "() => document.querySelectorAll('.st-key-stage_waterfall .bars .point').length"
WIDER = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.mark.slow
def test_it_answers_by_itself_and_again_from_its_address(dashboard_url, open_page):
    shown = DashboardPage(open_page(f"{dashboard_url}/fit?doc=example:gpt2&capacity=505MiB"), wait=False)
    shown.page.get_by_text(ANSWER).wait_for()
    shown.page.wait_for_function(f"() => ({BARS})() === 3")
    shown.settled()
    shown.type("Capacity", "520MiB")
    shown.page.get_by_text("Fits in 520 MiB: in place, zero-copy concat").wait_for()
    shown.page.wait_for_function(f"() => ({BARS})() === 2")
    assert shown.address["capacity"] == "520"
    shown.page.reload()
    shown.page.get_by_text("Fits in 520 MiB: in place, zero-copy concat").wait_for()
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Order, JSON").click()
    assert download.value.suggested_filename == "gpt2_order.json"
    assert shown.alerts == []


@pytest.fixture(scope="module")
def layers_url(tmp_path_factory):
    """A server with a graph whose best order is not proved within a minute."""
    path = tmp_path_factory.mktemp("layers") / "layers.json"
    write_json(layered_graph(3, 1_200, 50), path)
    with serve(ROOT / "dashboard" / "app.py", path) as address:
        yield address


@pytest.mark.slow
def test_it_goes_on_over_a_reload_and_cancel_keeps_the_stages(layers_url, open_page):
    shown = DashboardPage(open_page(f"{layers_url}/fit?doc=file:layers.json&fit_limit=600"), wait=False)
    told = shown.page.locator(".st-key-fit_progress")
    told.get_by_text("searched").wait_for()
    seconds = "+document.querySelector('.st-key-fit_progress')?.innerText.match(/ (\\d+) s/)?.[1]"
    shown.page.wait_for_function(f"() => {seconds} >= 5")
    shown.page.reload()
    told.get_by_text("searched").wait_for()
    # A fit that begins again would start at 0 s.
    assert shown.page.wait_for_function(f"() => {seconds} || false").json_value() >= 5
    shown.page.get_by_role("button", name="Cancel").click()
    shown.page.get_by_text("Cancelled: these are the stages that were there.").wait_for()
    shown.settled()
    shown.page.wait_for_function(f"() => ({BARS})() >= 2")
    assert not told.count()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_narrow_page_holds_all_of_it(dashboard_url, open_page, scheme):
    tab = open_page(f"{dashboard_url}/fit?doc=example:teaching_order", scheme=scheme, width=800, height=900)
    shown = DashboardPage(tab, wait=False)
    shown.page.get_by_text("Needs 17 KiB: another order of the ops").wait_for()
    shown.settled()
    shown.page.wait_for_function(f"() => ({BARS})() > 0")
    assert not shown.page.evaluate(WIDER)
