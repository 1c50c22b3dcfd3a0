"""What the chart leaves to the page until it has the focus, what can be done without a pointer, and the steps
that a reader marks."""

import pytest

pytest.importorskip("playwright")
from memplan_dashboard.plan_view.component import FRONTEND

from memplan_engine.plotting.bundling import SHARED, bundle
from tests.dashboard.plan_view.mounted_chart import GUTTER
from tests.dashboard.plan_view.plan_view_app import plain

SCROLLED = "window.scrollY"
LISTENERS = """(source) => {
    const Listeners = new Function(source + "; return Listeners;")();
    const [listeners, heard] = [new Listeners(), []];
    const end = listeners.on("step", (value) => heard.push(value));
    listeners.on("view", () => heard.push("view"));
    listeners.tell("step", 1);
    listeners.tell("nobody", 2);
    end();
    listeners.tell("step", 3);
    return heard;
}"""
PEAKS = """([source, live]) => {
    const { localPeaks, liveAt } = new Function(source + "; return { localPeaks, liveAt };")();
    const profile = { profileStart: live.map((_, i) => 2 * i), profileLive: live };
    return [localPeaks(profile), liveAt(profile, 3)];
}"""


def test_listeners_get_their_event_until_they_are_removed(empty_page):
    assert empty_page.evaluate(LISTENERS, bundle([FRONTEND / "listeners.js"])) == [1]


def test_a_local_peak_stands_out_on_both_sides(empty_page):
    source = bundle([SHARED / "columns.js", FRONTEND / "steps.js"])
    for live, peaks in [
        ([0, 50, 100, 100, 20, 60, 10], [4, 10]),
        ([100, 98, 99, 20, 60, 58, 60], [0, 8]),  # What wavers by less than a twentieth is one peak.
        ([0, 10, 40, 100], [6]),
        ([0, 0], []),
        ([], []),
    ]:
        found, third = empty_page.evaluate(PEAKS, [source, live])
        assert found == peaks
        assert third == (live[1] if live else 0)


def test_the_wheel_scrolls_the_page_until_the_chart_has_the_focus(open_chart):
    chart = open_chart(height=500)
    before = chart.data("view")
    chart.stage.scroll_into_view_if_needed()
    chart.mouse(*chart.at(7.5, 6))
    scrolled = chart.page.evaluate(SCROLLED)
    chart.page.mouse.wheel(0, 100)
    chart.page.wait_for_function(f"() => {SCROLLED} > {scrolled}")
    assert chart.data("view") == before
    chart.mouse(*chart.at(7.5, 6))
    chart.page.keyboard.down("Control")
    chart.page.mouse.wheel(0, -100)
    chart.page.keyboard.up("Control")
    chart.until("view", before, other=True)
    zoomed = chart.data("view")
    # A click gives it the focus, which is seen; Esc gives both back.
    chart.click(*chart.at(7.5, 6))
    assert chart.stage.evaluate("stage => getComputedStyle(stage).boxShadow") != "none"
    chart.page.mouse.wheel(0, -100)
    chart.until("view", zoomed, other=True)
    zoomed, scrolled = chart.data("view"), chart.page.evaluate(SCROLLED)
    chart.page.keyboard.press("Escape")
    chart.page.keyboard.press("Escape")
    assert chart.stage.evaluate("stage => getComputedStyle(stage).boxShadow") == "none"
    chart.page.mouse.wheel(0, 100)
    chart.page.wait_for_function(f"() => {SCROLLED} > {scrolled}")
    assert chart.data("view") == zoomed


def test_everything_of_the_pointer_can_be_done_with_buttons(open_chart):
    chart = open_chart()
    button = {
        name: chart.root.get_by_role("button", name=name, exact=True)
        for name in ("Zoom in", "Zoom out", "Zoom to the selection (f)", "Show everything (0)", "Keys")
    }
    assert button["Zoom to the selection (f)"].is_disabled()
    assert button["Show everything (0)"].is_disabled()
    button["Zoom in"].focus()
    chart.page.keyboard.press("Enter")
    chart.until("zoomed", "true")
    x0, x1, y0, y1 = chart.view()
    assert (x1 - x0, (y1 - y0) / (1 << 20)) == pytest.approx((8, 8.72))
    button["Zoom out"].press("Enter")
    chart.until("zoomed", "false")
    chart.press("ArrowUp", "ArrowDown", "ArrowRight")
    chart.reported(1)
    button["Zoom to the selection (f)"].press("Enter")
    chart.until("zoomed", "true")
    # The second buffer, steps 5 to 10 below 4 MiB, with half its size around it, kept inside of the plan.
    x0, x1, y0, y1 = chart.view()
    assert (x0, x1) == (0, 10)
    assert (y0, y1 / (1 << 20)) == pytest.approx((0, 10))
    button["Show everything (0)"].press("Enter")
    chart.until("zoomed", "false")
    chart.press("f")
    chart.until("zoomed", "true")


def test_the_keys_are_told_in_a_dialog_that_the_keyboard_closes(open_chart):
    chart = open_chart()
    chart.press("?")
    dialog = chart.root.get_by_role("dialog", name="Keys of the chart")
    dialog.wait_for()
    assert "next and previous local peak" in dialog.inner_text()
    chart.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    chart.root.get_by_role("button", name="Keys", exact=True).press("Enter")
    dialog.get_by_role("button", name="Close").press("Enter")
    dialog.wait_for(state="hidden")


def test_a_click_on_the_strip_marks_a_step_and_is_reported(open_chart):
    chart = open_chart()
    chart.click(*chart.below(7.5))
    chart.until("marks", "7,")
    chart.marked(7, None)
    assert "step 7, live 10 MiB" in chart.page.locator(".spoken").inner_text()
    # In the middle of the step's column there is a line, through plot and strip.
    overlay = chart.page.locator(".panels canvas.overlay").first
    line = "(c, x) => c.getContext('2d').getImageData(x * c.width / c.clientWidth, 100, 1, 1).data[3]"
    assert overlay.evaluate(line, chart.at(7.5, 0)[0]) == 255
    chart.page.keyboard.down("Shift")
    chart.click(*chart.below(2.5))
    chart.page.keyboard.up("Shift")
    chart.marked(7, 2)
    chart.press("Escape")
    chart.marked(None, None)


def test_dragging_along_the_strip_scrubs_and_moves_nothing(open_chart):
    chart = open_chart()
    chart.wheel(*chart.at(5, 5))
    before = chart.data("view")
    chart.mouse(*chart.below(2))
    chart.page.mouse.down()
    box = chart.base.bounding_box()
    last = GUTTER + (box["width"] - GUTTER - 1) * 0.99
    chart.page.mouse.move(box["x"] + last, box["y"] + 30, steps=4)
    chart.page.mouse.up()
    x0, x1, *_ = chart.view()
    step = int(x0 + (x1 - x0) * 0.99)
    chart.until("marks", f"{step},")
    chart.marked(step, None)
    assert (chart.data("view"), chart.data("selected")) == (before, "")


def test_keys_go_from_step_to_step_and_from_peak_to_peak(open_chart):
    chart = open_chart("one")
    chart.press("n")
    chart.until("marks", ",", other=True)
    first = int(chart.data("marks").removesuffix(","))
    chart.press("p")
    chart.until("marks", f"{first},", other=True)
    chart.press("n", ".")
    chart.until("marks", f"{first + 1},")
    chart.press(",", ",")
    chart.until("marks", f"{first - 1},")
    chart.marked(first - 1, None)


def test_the_page_can_mark_steps_and_later_clicks_still_count(open_chart):
    chart = open_chart(marks=(3, None))
    chart.until("marks", "3,")
    chart.click(*chart.below(7.5))
    chart.marked(7, None)
    chart.draw(plain())
    chart.until("marks", "7,")
