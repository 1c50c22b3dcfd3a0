"""The tab Allocator of Inspect in a browser: the way to it, its curves, its segments, other settings."""

from itertools import pairwise

import pytest

pytest.importorskip("playwright")
from tests.support.dashboard_page import DashboardPage


@pytest.mark.slow
def test_the_way_to_the_settings_the_curves_and_the_segments(dashboard_url, open_page):
    page = DashboardPage(
        open_page(f"{dashboard_url}/?doc=example:cuda_snapshot", width=1440, height=900), wait=True
    )
    told = page.page.get_by_text("With expandable_segments:True the request is met (rules only)").first
    told.wait_for()
    button = page.page.locator(".st-key-try_settings").get_by_role("button")
    button.filter(has_text="Apply").click()
    page.eventually(lambda: page.address.get("settings"), "expandable_segments:True")
    assert page.address["tab"] == "Allocator"
    button.filter(has_text="Undo").click()
    page.eventually(lambda: page.address.get("settings", ""), "")
    curves = page.page.locator(".st-key-allocator_over_time")
    # While Plotly draws again, there are two legends.
    for name in ("fragmentation", "live", "active", "reserved"):
        page.eventually(curves.locator(".legendtext").get_by_text(name, exact=True).count, 1)
    # Drawn, and with the axis of bytes.
    page.eventually(curves.locator(".scatterlayer .trace").count, 4)
    page.eventually(curves.get_by_text("1 GiB").count, 1)
    segments = page.page.locator("[class*=st-key-segment_bars]")
    segments.locator(".barlayer .point").first.wait_for()
    page.eventually(segments.locator(".legendtext").all_text_contents, ["cached", "in use"])
    page.type("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    page.eventually(lambda: page.address.get("settings"), "expandable_segments:True")
    page.page.get_by_test_id("stMetric").filter(has_text="1.39 GiB").wait_for()
    page.type("PYTORCH_CUDA_ALLOC_CONF", "max_split:3")
    page.page.get_by_test_id("stAlert").filter(has_text="max_split").wait_for()
    assert page.page.get_by_test_id("stMetric").count() == 0


@pytest.mark.slow
def test_a_click_on_the_curves_picks_a_step_and_one_on_a_block_shows_its_stack(dashboard_url, open_page):
    page = DashboardPage(
        open_page(f"{dashboard_url}/?doc=example:cuda_snapshot&tab=Allocator", width=1440, height=900)
    )
    plot = page.page.locator(".st-key-allocator_over_time .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    at = (box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    page.page.mouse.move(*at)
    page.page.mouse.move(at[0] + 1, at[1])
    page.page.mouse.click(*at)
    page.eventually(lambda: 500 < int(page.address.get("event", "0")) < 800, True)
    step = int(page.address["event"])
    told = page.page.get_by_text(f"segments at step {step:,}")
    told.wait_for()
    blocks = page.page.locator("[class*=st-key-segment_bars] .barlayer .trace").nth(1).locator(".point")
    blocks.first.scroll_into_view_if_needed()
    middle = blocks.first.bounding_box()
    at = (middle["x"] + middle["width"] / 2, middle["y"] + middle["height"] / 2)
    # Plotly has to have seen the pointer there.
    page.page.mouse.move(*at)
    page.page.mouse.move(at[0] + 1, at[1])
    page.page.mouse.click(*at)
    page.page.get_by_text("innermost call first").last.wait_for()
    page.page.get_by_test_id("stCode").filter(has_text="train.py").first.wait_for()


@pytest.mark.slow
def test_the_story_of_a_recording_stands_above_its_chart_and_both_above_the_fold(dashboard_url, open_page):
    page = DashboardPage(
        open_page(f"{dashboard_url}/?doc=example:cuda_snapshot", width=1440, height=900), wait=True
    )
    order = (".st-key-headline", ".plan-view .stage", ".plan-view .details", ".st-key-to_take")
    boxes = [page.page.locator(each).first.bounding_box() for each in order]
    for above, below in pairwise(boxes):
        assert above["y"] < below["y"]
    assert boxes[-1]["y"] + boxes[-1]["height"] <= 900
    # The tree and the buffer it begins with are of the request that failed, with the whole stack.
    side = page.root.locator(".side")
    assert side.get_by_role("heading", name="Step 1,952 is made of").count() == 1
    assert side.locator("[aria-pressed=true]").inner_text() == "line"
    assert "/home/me/train.py:88 <module>" in side.locator(".details .code").inner_text()
