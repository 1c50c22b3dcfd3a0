"""The rectangle chart in a real browser: what is drawn where, what pointer and keys do, what is reported."""

import pytest

pytest.importorskip("playwright")
from memplan_dashboard.plan_view.component import FRONTEND

from memplan_engine.plotting.bands import BRANCH_COLOURS, Band
from memplan_engine.plotting.bundling import SHARED, bundle
from memplan_engine.plotting.colouring import PHASE_COLOURS
from tests.dashboard.plan_view.mounted_chart import (
    AXIS,
    CONV,
    GUTTER,
    HEIGHT,
    INKED,
    LIGHT,
    NORM,
    PLOT,
    RELU,
    TOP,
)
from tests.dashboard.plan_view.plan_view_app import many, panel_of, plain, rows_of

SPY = "window.unheld = 0; window.addEventListener('wheel', (e) => { window.unheld += !e.defaultPrevented })"


def test_rectangles_are_drawn_where_they_belong(open_chart):
    chart = open_chart()
    assert chart.data("drawn") == "3"
    assert chart.pixel(*chart.at(2.5, 2)) == CONV
    assert chart.pixel(*chart.at(7.5, 2)) == NORM
    assert chart.pixel(*chart.at(4, 9)) == RELU
    assert chart.pixel(*chart.at(4, 10.4)) == [0, 0, 0]
    between = [chart.pixel(*chart.at(step, 2)) for step in (4.9, 5.1)]
    assert between == [CONV, NORM]


def test_every_panel_says_in_words_what_it_shows(open_chart):
    chart = open_chart()
    label = chart.base.get_attribute("aria-label")
    assert label == (
        "plain: 3 buffers over 10 steps, arena 10 MiB, lower bound 10 MiB, peak at step 0 (op0)."
    )
    assert chart.base.get_attribute("role") == "img"
    assert chart.page.locator(".legend .label").all_inner_texts()[:3] == ["conv", "norm", "relu"]


@pytest.mark.parametrize(("scheme", "colour"), [("light", [107, 47, 163]), ("dark", [227, 181, 255])])
def test_what_ops_hold_is_a_line_on_the_strip(open_chart, scheme, colour):
    """It reaches 30 MiB at step 5, thrice the arena: the strip's axis ends 9 % above."""
    chart = open_chart("held", scheme=scheme)
    assert "with temporaries at most 30 MiB" in chart.base.get_attribute("aria-label")
    strip = HEIGHT - AXIS - (PLOT + TOP + 26)
    peak = HEIGHT - AXIS - strip / 1.09

    def line_at(step):
        x = chart.at(step, 0)[0]
        return any(chart.pixel(x, peak + off) == colour for off in (-1, -0.5, 0, 0.5, 1))

    assert line_at(5.5)
    assert not line_at(3.5)
    assert not line_at(6.5)
    made_up = {"light": [0x12, 0x34, 0x56], "dark": [0xFE, 0xDC, 0xBA]}[scheme]
    across = [chart.pixel(chart.at(3, 0)[0] + x, HEIGHT - AXIS - strip * 20 / 32.7) for x in range(20)]
    assert 12 <= across.count(made_up) <= 19
    chart.mouse(chart.at(5.5, 0)[0], HEIGHT - AXIS - 20)
    assert chart.tooltip.inner_text().splitlines()[:3] == [
        "step 5 · op5",
        "with temporaries 30 MiB",
        "made up 20 MiB",
    ]
    chart.mouse(chart.at(6.5, 0)[0], HEIGHT - AXIS - 20)
    assert chart.tooltip.inner_text().splitlines()[1] == "with temporaries 10 MiB"


def test_hover_shows_the_buffer_and_elsewhere_the_step(open_chart):
    chart = open_chart()
    chart.mouse(*chart.at(7.5, 2))
    assert chart.tooltip.inner_text().splitlines() == [
        "second",
        "4 MiB at offset 0 B",
        "live [5, 10), 5 steps",
        "step 7 · op7",
    ]
    chart.mouse(*chart.at(3.5, 10.5))
    step = ["step 3 · op3", "live 10 MiB · high water 10 MiB", "fragmentation 0 B"]
    assert chart.tooltip.inner_text().splitlines() == step
    chart.mouse(chart.at(3.5, 0)[0], HEIGHT - AXIS - 20)
    assert chart.tooltip.inner_text().splitlines() == step
    chart.page.mouse.move(2, 2)
    assert chart.tooltip.is_hidden()


def test_names_are_text_and_never_markup(open_chart):
    chart = open_chart()
    chart.mouse(*chart.at(2.5, 2))
    assert chart.tooltip.locator(".name").inner_text() == "<script>window.hacked = 1</script>"
    assert chart.tooltip.locator("script").count() == 0
    assert chart.page.evaluate("window.hacked") is None


def test_a_click_selects_and_is_reported(open_chart):
    chart = open_chart()
    chart.click(*chart.at(7.5, 2))
    chart.reported(1)
    assert "second, 4 MiB at offset 0 B" in chart.page.locator(".spoken").inner_text()
    chart.click(*chart.at(4, 10.6))
    chart.reported(None)


def test_selection_and_zoom_outlive_reruns(open_chart):
    chart = open_chart()
    chart.wheel(*chart.at(7.5, 2))
    zoomed = chart.data("view")
    chart.click(*chart.at(7.5, 2))
    chart.reported(1)
    chart.draw(plain())
    assert (chart.data("view"), chart.data("selected")) == (zoomed, "1")
    chart.draw([panel_of("moved", list(each.names), rows_of(each), each.offset) for each in plain()])
    assert chart.page.locator(".title").inner_text() == "moved"
    assert (chart.data("view"), chart.data("selected")) == (zoomed, "1")
    assert chart.heard("selection") == [{"index": 1, "serial": 0}]
    chart.base.dblclick(position={"x": 5, "y": 5})
    chart.until("zoomed", "false")


def test_the_page_can_set_the_selection_and_later_clicks_still_count(open_chart):
    chart = open_chart()
    chart.click(*chart.at(7.5, 2))
    chart.reported(1)
    chart.draw(plain(), selected=2)
    chart.until("selected", "2")
    chart.click(*chart.at(2.5, 2))
    chart.reported(0)
    assert chart.heard("selection")[-1] == {"index": 0, "serial": 1}


def test_the_selection_is_outlined_in_every_panel(open_chart):
    chart = open_chart("three")
    chart.stage.focus()
    overlays = chart.page.locator(".panels canvas.overlay").all()
    assert [overlay.evaluate(INKED) for overlay in overlays] == [0] * 3
    chart.page.keyboard.press("ArrowRight")
    assert all(overlay.evaluate(INKED) for overlay in overlays)


def test_hovering_lights_buffer_and_step_in_the_other_panel(open_chart):
    chart = open_chart("pair")
    other = chart.page.locator(".panels canvas.overlay").nth(1)
    chart.mouse(*chart.at(7.5, 10.5))
    cursor = other.evaluate(INKED)
    chart.mouse(*chart.at(7.5, 2))
    outlined = other.evaluate(INKED)
    assert 0 < cursor < outlined


def test_the_arrow_keys_move_the_selection(open_chart):
    chart = open_chart()
    chart.stage.focus()
    # The largest at the peak, what lies below it, the next to the right, what lies above, and none.
    for key, expected in [("ArrowUp", 2), ("ArrowDown", 0), ("ArrowRight", 1), ("ArrowLeft", 0)]:
        chart.page.keyboard.press(key)
        chart.until("selected", str(expected))
    chart.reported(0)
    chart.page.keyboard.press("Escape")
    chart.reported(None)


def test_the_keys_zoom_and_reset(open_chart):
    chart = open_chart()
    chart.stage.focus()
    chart.page.keyboard.press("+")
    chart.until("zoomed", "true")
    x0, x1, y0, y1 = chart.view()
    assert (x1 - x0, (y1 - y0) / (1 << 20)) == pytest.approx((8, 8.72))
    chart.page.keyboard.press("0")
    chart.until("zoomed", "false")


def test_the_keys_pan_and_bring_a_marked_step_into_view(open_chart):
    chart = open_chart("one")
    chart.press(*"wwww")
    chart.frame()
    x0, x1, y0, y1 = chart.view()
    chart.press("d")
    chart.frame()
    left, right, *_ = chart.view()
    assert left > x0
    assert right - left == pytest.approx(x1 - x0, abs=0.02)
    chart.press("a")
    chart.frame()
    assert chart.view() == pytest.approx([x0, x1, y0, y1], abs=0.02)
    chart.press("Shift+ArrowUp")
    chart.frame()
    assert chart.view()[2] > y0
    chart.press("s")
    chart.frame()
    assert chart.view()[1] - chart.view()[0] > x1 - x0
    # From one local peak to the one before, up to the first, which was out of sight.
    marked = None
    while marked != chart.data("marks"):
        marked = chart.data("marks")
        chart.press("p")
        chart.frame()
        left, right, *_ = chart.view()
        assert left <= int(chart.data("marks").removesuffix(",")) < right
    assert left < x0


def test_the_wheel_zooms_at_the_pointer_and_leaves_the_page_alone(open_chart):
    chart = open_chart(height=500)
    chart.stage.scroll_into_view_if_needed()
    chart.page.evaluate(SPY)
    place = chart.at(7.5, 2)
    chart.stage.focus()
    chart.mouse(*place)
    scrolled = chart.page.evaluate("window.scrollY")
    for held, axes in [("Control", "xy"), ("Shift", "y"), ("Alt", "x")]:
        chart.page.keyboard.down(held)
        chart.wheel(*place, times=1)
        chart.page.keyboard.up(held)
        x0, x1, y0, y1 = chart.view()
        whole_x, whole_y = x1 - x0 == 10, y1 - y0 == pytest.approx(10.9 * (1 << 20))
        assert (whole_x, whole_y) == ("x" not in axes, "y" not in axes)
        assert (7.5 - x0) / (x1 - x0) == pytest.approx(0.75, abs=0.01)
        chart.base.dblclick(position={"x": 5, "y": 5})
        chart.until("zoomed", "false")
    assert chart.page.evaluate("window.unheld") == 0
    assert chart.page.evaluate("window.scrollY") == scrolled


def test_dragging_pans(open_chart):
    chart = open_chart()
    chart.wheel(*chart.at(5, 5))
    x0, x1, *_ = chart.view()
    chart.mouse(*chart.at(5, 5))
    chart.page.mouse.down()
    box = chart.base.bounding_box()
    width = box["width"] - GUTTER - 1
    x, y = chart.at(5, 5)
    chart.page.mouse.move(box["x"] + x - 100, box["y"] + y, steps=4)
    chart.page.mouse.up()
    chart.frame()
    assert chart.view()[0] == pytest.approx(x0 + 100 * (x1 - x0) / width, abs=0.05)
    assert chart.data("selected") == ""


def test_all_pieces_of_a_buffer_belong_together(open_chart):
    chart = open_chart("pieces")
    assert chart.data("drawn") == "3"
    box = chart.base.bounding_box()
    width = box["width"] - GUTTER - 1
    y = TOP + PLOT - PLOT * 5 / (6 * 1.09)
    for step in (1, 8.5):
        chart.mouse(GUTTER + width * step / 10, y)
        assert chart.tooltip.locator(".name").inner_text() == "gapped"
    chart.mouse(GUTTER + width * 0.5, y)
    assert chart.tooltip.locator(".name").inner_text().startswith("step 5")
    chart.click(GUTTER + width * 0.85, y)
    chart.reported(1)


def test_light_and_dark_differ_and_follow_the_theme(open_chart):
    chart = open_chart(scheme="dark")
    assert chart.pixel(*chart.at(2.5, 2)) == [91, 143, 196]
    chart.theme = LIGHT
    chart.draw(plain())
    assert chart.pixel(*chart.at(2.5, 2)) == CONV


RIBBON = """
canvas => {
  const ratio = canvas.width / canvas.clientWidth;
  const row = canvas.getContext("2d").getImageData(0, Math.round(5 * ratio), canvas.width, 1).data;
  const found = new Set();
  for (let i = 0; i < row.length; i += 4) {
    const hex = [0, 1, 2].map((k) => row[i + k].toString(16).padStart(2, "0"));
    if (row[i + 3] === 255) found.add("#" + hex.join(""));
  }
  return [...found];
}
"""


@pytest.mark.parametrize(("scheme", "side"), [("light", 0), ("dark", 1)])
def test_phases_are_bands_above_the_chart(open_chart, scheme, side):
    phases = ("forward", "backward", "optimizer")
    colours = [PHASE_COLOURS[phase] for phase in phases]
    bands = [
        Band(name, 3 * i, 3 * i + 3, pair) for i, (name, pair) in enumerate(zip(phases, colours, strict=True))
    ]
    chart = open_chart(plain(bands=tuple(bands)), scheme=scheme)
    assert "forward, backward, optimizer" in chart.base.get_attribute("aria-label")
    wanted = {pair[side].lower() for pair in colours}
    assert wanted <= set(chart.base.evaluate(RIBBON))
    chart.draw(plain())
    assert not wanted & set(chart.base.evaluate(RIBBON))


def test_branches_are_rows_of_bands_with_lines_through_the_chart_and_their_names_under_the_pointer(
    open_chart,
):
    bands = (
        Band("loop · body", 1, 9, BRANCH_COLOURS, 0, "body"),
        Band("cond · true", 3, 7, BRANCH_COLOURS, 1, "true"),
    )
    chart = open_chart()
    line = (round(chart.at(3, 2)[0]), chart.at(3, 2)[1])
    assert chart.pixel(*line) == CONV
    chart.draw(plain(bands=bands))
    assert chart.pixel(*line) != CONV
    assert chart.pixel(line[0] + 3, line[1]) == CONV
    second_row = (chart.at(4, 0)[0], TOP + 18 + 9)
    chart.mouse(*second_row)
    assert chart.tooltip.locator(".name").inner_text() == "cond · true"
    assert "steps 3 to 6" in chart.tooltip.inner_text()
    chart.mouse(chart.at(2, 0)[0], TOP + 18 + 9)
    assert chart.tooltip.locator(".name").inner_text() == "step 2 · op2"
    chart.click(*second_row)
    chart.until("zoomed", "true")
    start, end, *_ = chart.view()
    assert 0 < start <= 3
    assert 7 <= end < 10


@pytest.mark.parametrize(("width", "lefts"), [(1440, 3), (800, 2)])
def test_panels_stand_side_by_side_or_wrap_where_it_is_narrow(open_chart, width, lefts):
    chart = open_chart("three", width=width, height=1200)
    boxes = [panel.bounding_box() for panel in chart.page.locator(".panel").all()]
    assert len({round(box["x"]) for box in boxes}) == lefts
    assert max(box["x"] + box["width"] for box in boxes) <= width
    titles = chart.page.locator(".title").all_inner_texts()
    assert titles == ["linear_scan", "greedy_by_size", "greedy_by_lifetime"]


def test_an_empty_plan_is_drawn_as_such(open_chart):
    chart = open_chart("empty")
    assert chart.data("drawn") == "0"
    chart.stage.focus()
    chart.page.keyboard.press("ArrowUp")
    assert chart.data("selected") == ""


@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_many_rectangles(open_chart, count):
    """Above 200,000 rectangles the server sends only those in view."""
    chart = open_chart(many(count))
    assert chart.data("drawn") == str(count)
    chart.mouse(400, 200)
    assert chart.tooltip.inner_text() != ""


NAMES = """([source, values]) => {
    const [formatBytes, idAt] = [(value) => `${value} B`, () => -1];
    const draw = new Function("formatBytes", "idAt", source + "; return drawLevelNames;")(formatBytes, idAt);
    const told = {};
    const ctx = { measureText: (text) => ({ width: 6 * text.length }), fillRect() {},
        fillText: (text, x, y) => { told[text] = y - 8; } };
    const parts = { left: 0, top: 0, bottom: 400, plotWidth: 900 };
    const panel = { ...values, peakStep: 700 };
    draw(ctx, panel, parts, { x: (step) => step, y: (value) => 400 - value }, {}, { width: 900 }, true);
    return told;
}"""


def test_no_line_goes_through_the_name_of_another(empty_page):
    source = bundle([SHARED / "levels.js", FRONTEND / "level_names.js"])
    # Room above, only below, and on both sides a line too near: beyond that.
    for before, capacity, tops in (
        (380, 200, (60 - 16, 20 - 16, 200 - 16)),
        (346, 200, (60 + 3, 54 - 16, 200 - 16)),
        (346, 334, (54 - 16, 54 - 16, 66 + 3)),
    ):
        values = {"arena": 340, "bound": 340, "capacity": capacity, "before": before}
        values["arenaName"] = "arena = lower bound"
        names = ("arena = lower bound 340 B", f"before {before} B", f"capacity {capacity} B")
        assert empty_page.evaluate(NAMES, [source, values]) == dict(zip(names, tops, strict=True))
