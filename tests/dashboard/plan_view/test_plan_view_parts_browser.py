"""What stands around the chart: legend, search field, layers, the map of the whole."""

import re

import numpy as np
import pytest

pytest.importorskip("playwright")
from memplan_dashboard.plan_view import Found

from tests.dashboard.plan_view.mounted_chart import CONV, GUTTER, NORM, PLOT, RELU, TOP
from tests.dashboard.plan_view.plan_view_app import MIB, plain

LAYER_ROW = 20


def dimmed(colour):
    """As on a white ground."""
    return [round(value + (255 - value) * 0.8) for value in colour]


def colours(chart):
    """Those of the three rectangles of the "plain" scene."""
    return [chart.pixel(*chart.at(*place)) for place in ((2.5, 2), (7.5, 2), (4, 9))]


def test_a_click_in_the_legend_dims_the_others_and_a_second_one_shows_them(open_chart):
    chart = open_chart()
    button = {name: chart.root.get_by_role("button", name=name) for name in ("conv", "norm", "relu")}

    def shows(*expected):
        chart.frame()
        assert colours(chart) == list(expected)

    shows(CONV, NORM, RELU)
    button["norm"].click()
    shows(dimmed(CONV), NORM, dimmed(RELU))
    assert button["norm"].get_attribute("aria-pressed") == "true"
    button["relu"].click(modifiers=["Shift"])
    shows(dimmed(CONV), NORM, RELU)
    button["norm"].click(modifiers=["Control"])
    shows(dimmed(CONV), dimmed(NORM), RELU)
    button["relu"].press("Enter")
    shows(CONV, NORM, RELU)
    button["conv"].click()
    chart.draw(plain())
    shows(CONV, dimmed(NORM), dimmed(RELU))


def test_layers_are_named_as_deep_as_there_is_room(open_chart):
    chart = open_chart("layers", width=700)
    y = PLOT + TOP - LAYER_ROW + 10

    def named(x):
        chart.mouse(x, y)
        return chart.tooltip.inner_text().splitlines()

    width = chart.stage.bounding_box()["width"] - GUTTER - 1
    assert named(GUTTER + width * 0.7)[:2] == ["h.1.7", "steps 7 to 7"]
    # A click goes there; what is seen is cut no deeper than it was.
    chart.click(GUTTER + width * 0.7, y)
    chart.until("zoomed", "true")
    x0, x1, *_ = chart.view()
    assert x0 < 7 < 8 < x1
    assert x1 - x0 == 4
    assert chart.data("marks") == ","


def test_few_pixels_name_the_outer_layers_only(open_chart):
    chart = open_chart("layers", width=360)
    chart.mouse(GUTTER + 30, PLOT + TOP - LAYER_ROW + 10)
    assert chart.tooltip.locator(".name").inner_text() in ("h.0", "h")


def test_the_map_moves_resizes_and_draws_the_window(open_chart):
    chart = open_chart()
    canvas = chart.page.locator("canvas.minimap")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    width = box["width"] - GUTTER - 1

    def drag(start, end):
        y = box["y"] + box["height"] / 2
        chart.page.mouse.move(box["x"] + GUTTER + width * start / 10, y)
        chart.page.mouse.down()
        chart.page.mouse.move(box["x"] + GUTTER + width * end / 10, y, steps=3)
        chart.page.mouse.up()
        chart.frame()
        return chart.view()[:2]

    assert drag(2, 7) == pytest.approx([2, 7], abs=0.05)
    assert drag(4, 6) == pytest.approx([4, 9], abs=0.05)
    assert drag(9, 8) == pytest.approx([4, 8], abs=0.05)
    assert drag(4, 3) == pytest.approx([3, 8], abs=0.05)
    canvas.dblclick()
    chart.until("zoomed", "false")


def test_what_is_typed_is_searched_and_enter_goes_from_one_to_the_next(open_chart):
    def found(text):
        """Return what the page draws after its search."""
        names = ("first", "second", "above second")
        count = sum(text in name for name in names)
        dimmed = np.array([text not in name for name in names])
        return plain(dimmed=dimmed), Found(text, text, count, 5 * MIB * count)

    def searched(text):
        chart.page.wait_for_function("text => sent.at(-1)?.[1].text === text", arg=text)
        panels, find = found(text)
        chart.draw(panels, find=find)

    panels, find = found("")
    chart = open_chart(panels, find=find)
    chart.press("/")
    field = chart.root.get_by_role("searchbox", name=re.compile("Find by name, module or op"))
    field.press_sequentially("second")
    searched("second")
    count = chart.root.locator(".find .count")
    assert count.inner_text() == "2 · 10 MiB"
    assert colours(chart) == [dimmed(CONV), NORM, RELU]
    # A dashed line goes around what was found: not every pixel of an edge is its colour.
    left = round(chart.at(5, 0)[0])
    edges = [[chart.pixel(left + x, TOP + PLOT - 30 - y) == NORM for y in range(20)] for x in range(-1, 3)]
    assert any(0 < sum(edge) < 20 for edge in edges)
    chart.page.keyboard.press("Enter")
    chart.reported(2)
    assert count.inner_text() == "1 of 2 · 10 MiB"
    chart.page.keyboard.press("Enter")
    chart.reported(1)
    chart.page.keyboard.press("Enter")
    chart.reported(2)
    chart.page.keyboard.press("Shift+Enter")
    chart.reported(1)
    assert count.inner_text() == "2 of 2 · 10 MiB"
    field.fill("nowhere")
    searched("nowhere")
    assert count.inner_text() == "none"
    assert chart.root.get_by_role("button", name="Next match (Enter)").is_disabled()
    chart.page.keyboard.press("Escape")
    searched("")
    assert count.inner_text() == ""
    assert field.input_value() == ""


def test_a_chart_that_searches_nothing_has_no_field(open_chart):
    chart = open_chart()
    assert chart.root.get_by_role("searchbox").count() == 0
