"""Two plans that are compared: one selection in both, patterns, switches that fade the rest, the strip."""

import pytest

pytest.importorskip("playwright")
pytest.importorskip("streamlit")
from tests.dashboard.plan_view.mounted_chart import GUTTER, message_of
from tests.support.apptest import open_app

COUNT = """([panel, layer, color]) => {
    const canvas = document.querySelectorAll(`.panel canvas.${layer}`)[panel];
    const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (const pixel of new Uint32Array(image.data.buffer)) count += color ? pixel === color : pixel !== 0;
    return count;
}"""


def message(**parameters):
    """Return what the page Diff sends to the browser."""
    return message_of(open_app("diff", strategy="greedy_by_size", **parameters))


def pixels(chart, panel, color):
    """Return how many pixels of a panel have a colour "#rrggbb"."""
    red, green, blue = bytes.fromhex(color[1:])
    return chart.page.evaluate(COUNT, [panel, "base", 255 << 24 | blue << 16 | green << 8 | red])


def outlined(chart):
    """Return whether each panel's overlay shows a selection."""
    return [chart.page.evaluate(COUNT, [panel, "overlay", 0]) > 0 for panel in (0, 1)]


def test_a_click_goes_to_both_panels_and_a_switch_fades_the_rest(open_chart):
    chart = open_chart(message(), height=1500)
    assert chart.data("drawn") == "55"
    titles = chart.root.locator(".caption .title").all_inner_texts()
    assert titles == ["base: diff_kept_view_base", "head: diff_kept_view_head"]
    # The buffer that is kept is 6 steps long in base and 29 in head, and has its pattern on both sides.
    yellow = [pixels(chart, panel, "#ccbb44") for panel in (0, 1)]
    assert 4 < yellow[1] / yellow[0] < 6
    assert pixels(chart, 0, "#9b8e34") > 100
    assert outlined(chart) == [False, False]
    box = chart.stage.bounding_box()
    chart.click(GUTTER + 0.12 * (box["width"] - GUTTER), 4 + 0.45 * 0.7 * box["height"])
    (report,) = chart.heard("selection")
    assert chart.data("selected") == str(report["index"])
    assert chart.tooltip.inner_text().startswith("relu")
    chart.page.mouse.move(5, 5)
    assert outlined(chart) == [True, True]
    switch = chart.root.get_by_role("button", name="longer-lived")
    assert switch.get_attribute("aria-pressed") == "false"
    grey = pixels(chart, 1, "#bbbbbb")
    switch.click()
    assert chart.heard("filter") == [{"label": "longer-lived"}]
    chart.show(message(kinds="longer"))
    assert switch.get_attribute("aria-pressed") == "true"
    assert pixels(chart, 1, "#bbbbbb") < grey / 10
    assert pixels(chart, 1, "#ccbb44") == yellow[1]


def test_the_strip_tells_the_difference_at_a_step(open_chart):
    chart = open_chart(message(), height=1500)
    chart.root.locator(".difference .stage").hover(position={"x": 400, "y": 40})
    lines = chart.tooltip.inner_text().splitlines()
    assert "in base" in lines[1]
    assert "in head" in lines[1]
