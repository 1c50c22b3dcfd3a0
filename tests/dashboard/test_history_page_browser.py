"""The page History in a browser: a click on a change opens Diff with both graphs, and a narrow page holds."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
pytest.importorskip("sqlalchemy")
import memplan_examples

from memplan_engine import HistoryRun, load, measure_graph, open_history
from tests import ROOT
from tests.support.browser import serve
from tests.support.dashboard_page import DashboardPage

WIDER = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
MARK = """() => {
    const chart = document.querySelector("[class*=st-key-history_chart_] .js-plotly-plot");
    const found = chart?._fullData?.find(trace => trace.name === "to look at");
    if (!found) return null;
    const { xaxis, yaxis } = chart._fullLayout, box = chart.getBoundingClientRect();
    return [
        box.left + xaxis._offset + xaxis.l2p(found.x[0]),
        box.top + yaxis._offset + yaxis.l2p(found.y[0]),
    ];
}"""
"""Where the mark of the change lies on the screen."""


@pytest.fixture(scope="module")
def history_url(tmp_path_factory):
    """A server with a store of three commits, of which the last grows."""
    path = tmp_path_factory.mktemp("history") / "history.db"
    graphs = [load(each) for each in memplan_examples.pairs()["kept_view"]]
    with open_history(path) as history:
        for number, side in enumerate((0, 0, 1)):
            parent = f"{number - 1:040x}" if number else ""
            run = HistoryRun("shop", f"{number:040x}", parent, 86_400 * (1 + number), "main")
            history.record(run, [measure_graph(graphs[side], project="shop", model="kept")])
    with serve(ROOT / "dashboard" / "app.py", path) as address:
        yield address


def test_a_click_on_a_change_opens_diff_with_both_graphs(history_url, open_page):
    shown = DashboardPage(open_page(f"{history_url}/history", height=900), wait=False)
    page = shown.page
    page.get_by_text("make_pairs.py:67").first.wait_for(timeout=120_000)
    shown.settled()
    at = page.wait_for_function(MARK).json_value()
    page.mouse.move(*at)
    page.locator(".hoverlayer .hovertext").first.wait_for()
    page.mouse.click(*at)
    page.wait_for_url("**/diff?**")
    page.get_by_text("Peak +4 MiB, 16 MiB → 20 MiB").first.wait_for()
    shown.settled()
    assert shown.address["base"].startswith("upload:")
    assert shown.address["head"].startswith("upload:")
    page.go_back()
    page.get_by_text("kept needs 20 MiB, +4 MiB since").first.wait_for()
    shown.settled()
    assert shown.alerts == []
    page.set_viewport_size({"width": 390, "height": 800})
    shown.settled()
    assert not page.evaluate(WIDER)
