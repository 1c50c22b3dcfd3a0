"""Plans too large for the browser, in a real one: the picture is the same as if it had them whole."""

from pathlib import Path

import pytest

pytest.importorskip("playwright")
from tests.dashboard.plan_view.test_plan_view_browser import Chart
from tests.support.browser import serve

APP = Path(__file__).with_name("plan_view_app.py")
MOST = 1000
PICTURES = """() => [...document.querySelector('[data-testid=stBidiComponentIsolated]')
    .shadowRoot.querySelectorAll('canvas.base')].map((canvas) => canvas.toDataURL())"""


@pytest.fixture(scope="module")
def app_url():
    with serve(APP) as url:
        yield url


@pytest.fixture
def open_crowd(app_url, open_page):
    def open_one(most, **options):
        chart = Chart(open_page(f"{app_url}/?scene=crowd&most={most}", **options))
        chart.until("sharp", "true")
        return chart

    return open_one


def turn(chart, times, x=500, y=150):
    """Zoom about a place, until the picture is exact."""
    before = chart.data("view")
    chart.stage.focus()
    chart.mouse(x, y)
    for _ in range(times):
        chart.page.mouse.wheel(0, -240)
    chart.until("view", before, other=True)
    chart.page.wait_for_timeout(150)
    chart.until("sharp", "true")


def seen(chart):
    """View, pictures and number of rectangles, from afar, half way and near by."""
    found = []
    for times in (0, 1, 7):
        if times:
            turn(chart, times)
        pictures = chart.page.evaluate(PICTURES)
        found.append((chart.data("view"), pictures, int(chart.data("drawn"))))
    chart.tab.close()
    return found


def test_from_afar_half_way_and_near_by_it_looks_the_same(open_crowd):
    # One after the other: how many are too many holds for all tabs of the server.
    whole, part = seen(open_crowd(200_000)), seen(open_crowd(MOST))
    assert [view for view, _, _ in part] == [view for view, _, _ in whole]
    assert [pictures for _, pictures, _ in part] == [pictures for _, pictures, _ in whole]
    drawn = [(few, all_of_them) for (_, _, few), (_, _, all_of_them) in zip(part, whole, strict=True)]
    assert drawn[0][1] == 40_000
    assert drawn[0][0] < 30_000
    assert drawn[1][0] < drawn[1][1]
    assert drawn[2][0] == drawn[2][1] > 0


def rest_on_a_rectangle(chart):
    """Let the pointer rest on a rectangle of the first panel; its place."""
    for x in range(110, 500, 40):
        for y in range(60, 300, 23):
            chart.mouse(x, y)
            if "on-rect" in (chart.stage.get_attribute("class") or ""):
                return x, y
    raise AssertionError("no rectangle there")


def test_the_view_goes_to_one_that_nobody_sees_when_it_is_selected(open_crowd):
    chart = open_crowd(MOST)
    turn(chart, 8)
    before = chart.view()
    # What is selected elsewhere comes with its place, wherever it is: steps 8 to 12, at the bottom.
    chart.page.get_by_role("button", name="Select 2").click()
    chart.until("selected", "2")
    chart.reported("2")
    chart.until("sharp", "true")
    x0, x1, y0, y1 = chart.view()
    assert before[0] > 12 or before[2] > 4096
    assert x0 < 12 < x1 + 4
    assert y0 < 3072 < y1


def test_a_click_selects_in_a_window_and_the_other_panel_learns_of_it(open_crowd):
    chart = open_crowd(MOST)
    turn(chart, 8)
    x, y = rest_on_a_rectangle(chart)
    other = chart.tooltip.locator(".more").first
    # Asked for while the pointer rests: where the same buffer lies in the other plan.
    other.filter(has_text="upside down: offset").wait_for()
    chart.click(x, y)
    buffer = int(chart.tooltip.locator(".name").inner_text().removeprefix("t"))
    chart.reported(str(buffer))
    assert chart.data("selected") == str(buffer)
    assert chart.tab.errors == []
