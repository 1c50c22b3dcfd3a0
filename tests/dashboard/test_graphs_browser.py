"""Test what only a browser can show of graphs: sliders that move the picture, tabs in the address."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("streamlit")
from tests.support.dashboard_page import DashboardPage


@pytest.fixture
def dashboard(open_page, dashboard_url):
    """`dashboard("/?doc=…")` gives a page on the shared server."""
    return lambda address="/", **options: DashboardPage(open_page(dashboard_url + address, **options))


def test_a_slider_moves_the_rectangles(dashboard):
    page = dashboard("/?doc=example:gpt2_dynamic")
    assert page.metric("Arena") == "6.38 MiB"
    before = page.data("view")
    page.page.get_by_role("slider", name=re.compile("batch")).press("ArrowRight")
    page.eventually(lambda: page.metric("Arena"), "9.56 MiB")
    page.eventually(lambda: page.address.get("symbols"), "batch=3")
    page.drawn("view", before, other=True)


@pytest.mark.slow
def test_the_open_tab_is_in_the_address(dashboard):
    page = dashboard("/?doc=example:gpt2_dynamic")
    page.page.get_by_role("tab", name="Sizes").click()
    page.page.get_by_text("Arena by auto over batch").wait_for()
    page.eventually(lambda: page.address.get("tab"), "Sizes")
    page.eventually(page.page.locator(".js-plotly-plot:not(.st-key-search *) .scatterlayer .trace").count, 5)
    again = dashboard("/?doc=example:gpt2_dynamic&tab=Sizes")
    again.page.get_by_text("Arena by auto over batch").wait_for()


@pytest.mark.slow
def test_options_are_a_popover_whose_switches_plan_anew(dashboard):
    page = dashboard("/?doc=example:squeezenet")
    assert page.metric("Arena") == "6.02 MiB"
    page.page.get_by_role("button", name="Options").click()
    page.page.get_by_text("In-place elementwise ops").click()
    page.eventually(lambda: page.metric("Arena"), "3.75 MiB")
    page.eventually(lambda: page.address.get("in_place"), "1")
