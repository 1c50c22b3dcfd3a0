"""The rectangle chart in an app of Streamlit: a rerun, the theme, the address, the feed of a large plan."""

from pathlib import Path

import pytest

pytest.importorskip("playwright")
from tests.dashboard.plan_view.mounted_chart import CONV, Chart
from tests.support.browser import serve
from tests.support.waiting import wait_until

APP = Path(__file__).with_name("plan_view_app.py")
REACHED = """(stage) => {
    const box = stage.getBoundingClientRect();
    for (let x = 110; x < 500; x += 40) {
        for (let y = 60; y < 300; y += 23) {
            const [clientX, clientY] = [box.left + x, box.top + y];
            stage.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
            if (stage.classList.contains("on-rect")) return [x, y];
        }
    }
}"""


@pytest.fixture(scope="module")
def app_url():
    with serve(APP) as url:
        yield url


@pytest.fixture
def open_app(app_url, open_page):
    return lambda query, **options: Chart(open_page(f"{app_url}/?{query}", **options).page)


def test_python_gets_what_is_clicked_and_what_it_sets_lasts_over_reruns(open_app):
    chart = open_app("scene=plain&at=3", scheme="dark")
    page = chart.page
    chart.until("marks", "3,")
    assert chart.pixel(*chart.at(2.5, 2)) == [91, 143, 196]
    page.emulate_media(color_scheme="light")
    wait_until(lambda: chart.pixel(*chart.at(2.5, 2)) == CONV)
    chart.wheel(*chart.at(7.5, 2))
    zoomed = chart.data("view")
    page.wait_for_url("**view=**")
    chart.click(*chart.at(7.5, 2))
    page.get_by_text("reported: 1 ").wait_for()
    page.get_by_text("Other strategy").click()
    page.get_by_text("moved").wait_for()
    page.get_by_text("reported: 1 ").wait_for()
    assert (chart.data("view"), chart.data("selected")) == (zoomed, "1")
    # The page sets another one, and a later click still counts.
    page.get_by_role("button", name="Select 2").click()
    page.get_by_text("reported: 2 ").wait_for()
    chart.until("selected", "2")
    chart.click(*chart.at(7.5, 2))
    page.get_by_text("reported: 1 ").wait_for()
    chart.click(*chart.below(7.5))
    page.get_by_text("marked: (7, None)").wait_for()
    page.get_by_role("button", name="Rerun").click()
    page.get_by_text("reruns: 1").wait_for()
    assert chart.data("marks") == "7,"


def test_a_large_plan_is_fed_by_the_server(open_app):
    chart = open_app("scene=crowd&most=1000")
    chart.until("sharp", "true")
    for _ in range(2):
        before = chart.data("view")
        chart.wheel(500, 150, times=2)
        chart.until("view", before, other=True)
    chart.until("sharp", "true")
    x, y = chart.stage.evaluate(REACHED)
    chart.mouse(x, y)
    chart.tooltip.locator(".more").first.filter(has_text="upside down: offset").wait_for()
    chart.click(x, y)
    buffer = chart.tooltip.locator(".name").inner_text().removeprefix("t")
    chart.page.get_by_text(f"reported: {buffer} ").wait_for()
    assert chart.data("selected") == buffer
