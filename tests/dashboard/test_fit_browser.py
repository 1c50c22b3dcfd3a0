"""The page Fit in a real browser: it answers by itself, goes on over a reload, is cancelled, a point of its
curve can be clicked, and narrow pages have no second scroll bar."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("playwright")
from memplan_engine.formats.memplan_json.json_file import loads, write_json
from tests import ROOT
from tests.dashboard.fit_graphs import layers
from tests.rewrites.order_graphs import layered_graph
from tests.support.browser import serve
from tests.support.dashboard_page import DashboardPage

ANSWER = "Fits in 505 MiB: another order of the ops, 474.71 MiB state + 27 MiB arena"
BARS = "() => document.querySelectorAll('.st-key-stage_waterfall .bars .point').length"
POINT = """place => {
    const chart = document.querySelector("[class*=st-key-fit_curve_] .js-plotly-plot");
    const found = chart._fullData.find(trace => trace.name === "found");
    const { xaxis, yaxis } = chart._fullLayout, box = chart.getBoundingClientRect();
    return [
        box.left + xaxis._offset + xaxis.l2p(found.x[place]),
        box.top + yaxis._offset + yaxis.l2p(found.y[place]),
    ];
}"""
"""Where the point of that number lies on the screen."""
WIDER = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"


def test_it_answers_by_itself_and_again_from_its_address(dashboard_url, open_page):
    shown = DashboardPage(open_page(f"{dashboard_url}/fit?doc=example:gpt2&fit_capacity=505MiB"), wait=False)
    shown.page.get_by_text(ANSWER).wait_for(timeout=120_000)
    shown.page.wait_for_function(f"() => ({BARS})() === 3")
    shown.settled()
    shown.type("Capacity", "520MiB")
    shown.page.get_by_text("Fits in 520 MiB: in place, zero-copy concat").wait_for()
    shown.page.wait_for_function(f"() => ({BARS})() === 2")
    assert shown.address["fit_capacity"] == "520"
    shown.page.reload()
    shown.page.get_by_text("Fits in 520 MiB: in place, zero-copy concat").wait_for()
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Order, JSON").click()
    assert download.value.suggested_filename == "gpt2_order.json"
    assert shown.alerts == []


@pytest.fixture(scope="module")
def layers_url(tmp_path_factory):
    """A server with a graph whose best order nobody has proved within a minute."""
    path = tmp_path_factory.mktemp("layers") / "layers.json"
    write_json(layered_graph(3, 1_200, 50), path)
    with serve(ROOT / "dashboard" / "app.py", path) as address:
        yield address


def test_it_goes_on_over_a_reload_and_cancel_keeps_the_stages(layers_url, open_page):
    shown = DashboardPage(open_page(f"{layers_url}/fit?doc=file:layers.json&fit_limit=600"), wait=False)
    told = shown.page.locator(".st-key-fit_progress")
    told.get_by_text("searched").wait_for(timeout=120_000)
    seconds = "+document.querySelector('.st-key-fit_progress')?.innerText.match(/ (\\d+) s/)?.[1]"
    shown.page.wait_for_function(f"() => {seconds} >= 5", timeout=60_000)
    shown.page.reload()
    told.get_by_text("searched").wait_for(timeout=30_000)
    # Begun anew it would have to come to the order first.
    assert shown.page.wait_for_function(f"() => {seconds} || false").json_value() >= 5
    shown.page.get_by_role("button", name="Cancel").click()
    shown.page.get_by_text("Cancelled: these are the stages that were there.").wait_for(timeout=30_000)
    shown.settled()
    assert shown.page.evaluate(f"({BARS})()") >= 2
    assert not told.count()


@pytest.fixture(scope="module")
def curve_url(tmp_path_factory):
    """A server with a graph of three layers, of which one can be made again."""
    path = tmp_path_factory.mktemp("curve") / "net.json"
    write_json(layers(3), path)
    with serve(ROOT / "dashboard" / "app.py", path) as address:
        yield address


def test_a_point_that_is_clicked_is_the_capacity(curve_url, open_page):
    shown = DashboardPage(open_page(f"{curve_url}/fit?doc=file:net.json"), wait=False)
    shown.page.get_by_text("No schedule has an arena of fewer than").wait_for(timeout=120_000)
    shown.settled()

    def click(place):
        shown.page.locator("[class*=st-key-fit_curve_] .js-plotly-plot").scroll_into_view_if_needed()
        shown.page.mouse.click(*shown.page.evaluate(POINT, place))

    answer = shown.page.locator(".st-key-headline")
    click(1)
    answer.get_by_text("Fits in 10 MiB: ops run again, 1 MiB state + 9 MiB arena").wait_for()
    shown.settled()
    assert shown.address["fit_capacity"] == "10"
    shown.page.wait_for_function(f"() => ({BARS})() === 4")
    shown.page.get_by_text("chosen 9 MiB").wait_for()
    assert shown.page.get_by_text("memplan fit net.json --capacity 10MiB --only in_place").count()
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Plan, JSON").click()
    plan = loads(download.value.path().read_text(), "plan.json")
    assert [op.name for op in plan.problem.origin.graph.ops].count("f0_again") == 1
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Order, JSON").click()
    # That of the stages before: an order has each op once.
    assert sorted(json.loads(download.value.path().read_text())["steps"]) == [
        "b0",
        "b1",
        "b2",
        "f0",
        "f1",
        "f2",
    ]
    # The same point once more, after another capacity was typed.
    shown.type("Capacity", "20MiB")
    answer.get_by_text("Fits in 20 MiB: as captured").wait_for()
    shown.settled()
    click(1)
    answer.get_by_text("Fits in 10 MiB: ops run again").wait_for()
    shown.settled()
    click(0)
    answer.get_by_text("Fits in 14 MiB: as captured").wait_for()
    shown.page.go_back()
    answer.get_by_text("Fits in 10 MiB: ops run again").wait_for()
    assert shown.alerts == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_holds_all_of_it(dashboard_url, open_page, scheme):
    tab = open_page(f"{dashboard_url}/fit?doc=example:teaching_order", scheme=scheme, width=800, height=900)
    shown = DashboardPage(tab, wait=False)
    shown.page.get_by_text("Needs 17 KiB: another order of the ops").wait_for(timeout=120_000)
    shown.settled()
    assert not shown.page.evaluate(WIDER)
