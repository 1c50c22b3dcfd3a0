"""Plans too large for the browser: the picture is the same as if it had them whole."""

import pytest

pytest.importorskip("playwright")
from memplan_dashboard.plan_view import windows

from tests.dashboard.plan_view.plan_view_app import crowd

MOST = 1000
PICTURES = "() => [...document.querySelectorAll('canvas.base')].map((canvas) => canvas.toDataURL())"
TURN = """(stage, [x, y, times]) => {
    const box = stage.getBoundingClientRect();
    const [clientX, clientY] = [box.left + x, box.top + y];
    for (let i = 0; i < times; i += 1) {
        stage.dispatchEvent(new WheelEvent("wheel",
            { clientX, clientY, deltaY: -240, ctrlKey: true, bubbles: true, cancelable: true }));
    }
}"""
UNKNOWN = """(stage) => {
    const box = stage.getBoundingClientRect();
    const lines = stage.closest('.plan-view').querySelector('.tooltip').getElementsByClassName('more');
    for (let x = 110; x < 500; x += 40) {
        for (let y = 60; y < 300; y += 23) {
            const [clientX, clientY] = [box.left + x, box.top + y];
            stage.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
            if (stage.classList.contains("on-rect") && lines.length === 1) return [x, y];
        }
    }
}"""
"""The place of a rectangle whose tooltip says nothing of the other panel yet."""


@pytest.fixture
def open_crowd(open_chart, monkeypatch):
    """`open_crowd(most)` gives a chart of 40,000 rectangles, of which `most` at a time may travel."""
    monkeypatch.setattr(windows, "MOST_VECTORS", MOST)

    def open_one(most=MOST):
        chart = open_chart(crowd(), most=most)
        chart.sharp()
        return chart

    return open_one


def turn(chart, times, x=500, y=150):
    """Zoom about a place, until the picture is exact."""
    before = chart.data("view")
    chart.stage.evaluate(TURN, [x, y, times])
    chart.until("view", before, other=True)
    chart.sharp()


def seen(chart):
    """Return view, pictures and number of rectangles, from afar, half way and near by."""
    found = []
    for times in (0, 1, 7):
        if times:
            turn(chart, times)
        pictures = chart.page.evaluate(PICTURES)
        found.append((chart.data("view"), pictures, int(chart.data("drawn"))))
    return found


def test_from_afar_half_way_and_near_by_it_looks_the_same(open_crowd):
    whole, part = seen(open_crowd(most=None)), seen(open_crowd())
    assert [view for view, _, _ in part] == [view for view, _, _ in whole]
    assert [pictures for _, pictures, _ in part] == [pictures for _, pictures, _ in whole]
    drawn = [(few, all_of_them) for (_, _, few), (_, _, all_of_them) in zip(part, whole, strict=True)]
    assert drawn[0][1] == 40_000
    assert drawn[0][0] < 30_000
    assert drawn[1][0] < drawn[1][1]
    assert drawn[2][0] == drawn[2][1] > 0


def test_the_view_goes_to_a_buffer_out_of_sight_when_it_is_selected(open_crowd):
    chart = open_crowd()
    turn(chart, 8)
    before = chart.view()
    # What is selected elsewhere comes with its place, wherever it is: steps 8 to 12, at the bottom.
    chart.draw(crowd(), selected=2, most=MOST)
    chart.until("selected", "2")
    chart.sharp()
    x0, x1, y0, y1 = chart.view()
    assert before[0] > 12 or before[2] > 4096
    assert x0 < 12 < x1 + 4
    assert y0 < 3072 < y1


def test_a_click_selects_in_a_window_and_the_other_panel_learns_of_it(open_crowd):
    chart = open_crowd()
    turn(chart, 8)
    x, y = chart.stage.evaluate(UNKNOWN)
    chart.mouse(x, y)
    # Asked for while the pointer rests: where the same buffer lies in the other plan.
    chart.page.wait_for_function("() => questions.length > 0")
    chart.sharp()
    assert chart.tooltip.locator(".more").first.inner_text().startswith("upside down: offset")
    chart.click(x, y)
    buffer = int(chart.tooltip.locator(".name").inner_text().removeprefix("t"))
    chart.reported(buffer)
    assert chart.data("selected") == str(buffer)
