"""The pages Devices and Pipeline in a browser: charts are drawn, a rank is chosen, a narrow page holds."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
from tests.support.dashboard_page import DashboardPage

WIDER = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
DRAWN = "key => !!document.querySelector(`.st-key-${key} .js-plotly-plot .main-svg`)"
LABELS = "key => [...document.querySelectorAll(`.st-key-${key} .bartext`)].map(each => each.textContent)"


@pytest.mark.slow
def test_a_rank_is_chosen_on_devices_and_its_chart_is_drawn(dashboard_url, open_page):
    shown = DashboardPage(
        open_page(f"{dashboard_url}/devices?ranks=recorded:llama_GPipe&with=recorded:llama_fsdp_8"),
        wait=False,
    )
    page = shown.page
    page.get_by_text("Rank 0 over one step").wait_for()
    for key in ("rank_areas", "configurations"):
        page.wait_for_function(DRAWN, arg=key)
    # The fullest is outlined in the picture of all ranks: the frame has a colour of its own.
    frames = [
        page.locator(f".st-key-rankcard_{kind}").evaluate("each => getComputedStyle(each).outlineStyle")
        for kind in ("fullest_0", "other_1")
    ]
    assert frames[0] != frames[1]
    page.get_by_role("button", name="Rank 1").click()
    page.get_by_text("Rank 1 over one step").wait_for()
    shown.settled()
    assert shown.address["rank"] == "1"
    page.set_viewport_size({"width": 390, "height": 800})
    shown.settled()
    assert not page.evaluate(WIDER)


def test_the_actions_of_a_pipeline_are_named_in_their_order(dashboard_url, open_page):
    shown = DashboardPage(open_page(f"{dashboard_url}/pipeline?ranks=recorded:llama_GPipe"), wait=False)
    page = shown.page
    page.get_by_text("live bytes").first.wait_for()
    page.wait_for_function(DRAWN, arg="pipeline_0")
    drawn = page.evaluate(LABELS, "pipeline_0")
    # All forward passes, then all backward passes: colour by colour in the order of the rows.
    assert [label for label in drawn if label.startswith("F")] == ["F0", "F1", "F2", "F3"]
    assert [label for label in drawn if label.startswith("B")] == ["B0", "B1", "B2", "B3"]
