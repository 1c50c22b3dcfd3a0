"""The rectangle chart in a real browser: what is drawn where, what pointer and keys do, what Python hears."""

from pathlib import Path

import pytest

pytest.importorskip("playwright")
from memplan_dashboard.plan_view.component import FRONTEND

from memplan_engine.plotting.bundling import SHARED, bundle

APP = Path(__file__).with_name("plan_view_app.py")
HEIGHT = 520
STRIP = 104  # a fifth of the height
TOP, GAP, AXIS, GUTTER = 4, 26, 22, 76
PLOT = HEIGHT - TOP - GAP - STRIP - AXIS
CONV, NORM, RELU = [68, 119, 170], [34, 136, 51], [238, 102, 119]
SPY = "window.unheld = 0; window.addEventListener('wheel', (e) => { window.unheld += !e.defaultPrevented })"
INKED = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter(value => value).length"

PIXEL = """(canvas, [x, y]) => {
    const ratio = canvas.width / canvas.clientWidth;
    return Array.from(canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data).slice(0, 3);
}"""


class Chart:
    """The chart of one tab. `at` gives the place of a step and a number of MiB in the "plain" scene: its time
    axis has 10 steps, its memory axis ends 9 % above the arena of 10 MiB."""

    def __init__(self, tab):
        self.tab = tab
        self.page = tab.page
        self.root = self.page.locator(".plan-view[data-drawn]")
        self.root.wait_for()
        self.stage = self.page.locator(".stage").first
        self.base = self.page.locator("canvas.base").first
        self.tooltip = self.page.locator(".tooltip")

    def data(self, name):
        return self.root.get_attribute(f"data-{name}")

    def at(self, step, mib):
        width = self.stage.bounding_box()["width"] - GUTTER - 1
        return GUTTER + width * step / 10, TOP + PLOT - PLOT * mib / 10.9

    def pixel(self, x, y):
        return self.base.evaluate(PIXEL, [x, y])

    def mouse(self, x, y):
        self.stage.scroll_into_view_if_needed()
        box = self.base.bounding_box()
        self.page.mouse.move(box["x"] + x, box["y"] + y)

    def click(self, x, y):
        self.mouse(x, y)
        self.page.mouse.down()
        self.page.mouse.up()

    def wheel(self, x, y, times=3):
        before = self.data("view")
        self.stage.focus()
        self.mouse(x, y)
        for _ in range(times):
            self.page.mouse.wheel(0, -120)
        self.until("view", before, other=True)

    def until(self, name, value, other=False):
        """Wait until a data attribute has a value, or has another one."""
        script = f"""([name, value]) => {{
            const found = document.querySelector('[data-testid=stBidiComponentIsolated]')
                .shadowRoot.querySelector('.plan-view').getAttribute('data-' + name);
            return (found {"!==" if other else "==="} value);
        }}"""
        self.page.wait_for_function(script, arg=[name, value])

    def reported(self, value):
        self.page.get_by_text(f"reported: {value} ").wait_for()

    def press(self, *keys):
        self.stage.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def view(self):
        return [float(value) for value in self.data("view").split(",")]


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
        "live in steps 5 to 9, 5 steps",
        "step 7 · op7",
    ]
    chart.mouse(*chart.at(3.5, 10.5))
    step = ["step 3 · op3", "live 10 MiB · high water 10 MiB", "fragmentation 0 B"]
    assert chart.tooltip.inner_text().splitlines() == step
    chart.mouse(chart.at(3.5, 0)[0], HEIGHT - AXIS - 20)
    assert chart.tooltip.inner_text().splitlines() == step
    chart.page.mouse.move(2, 2)
    assert chart.tooltip.is_hidden()
    assert float(chart.data("hover-ms")) < 50


def test_names_are_text_and_never_markup(open_chart):
    chart = open_chart()
    chart.mouse(*chart.at(2.5, 2))
    assert chart.tooltip.locator(".name").inner_text() == "<script>window.hacked = 1</script>"
    assert chart.tooltip.locator("script").count() == 0
    assert chart.page.evaluate("window.hacked") is None


def test_a_click_selects_and_python_hears_it(open_chart):
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
    chart.page.get_by_role("button", name="Rerun").click()
    chart.page.get_by_text("reruns: 1").wait_for()
    assert (chart.data("view"), chart.data("selected")) == (zoomed, "1")
    chart.page.get_by_text("Other strategy").click()
    chart.page.get_by_text("moved").wait_for()
    chart.reported(1)
    assert (chart.data("view"), chart.data("selected")) == (zoomed, "1")
    chart.base.dblclick(position={"x": 5, "y": 5})
    chart.until("zoomed", "false")


def test_the_page_can_set_the_selection_and_later_clicks_still_count(open_chart):
    chart = open_chart()
    chart.click(*chart.at(7.5, 2))
    chart.reported(1)
    chart.page.get_by_role("button", name="Select 2").click()
    chart.reported(2)
    chart.until("selected", "2")
    chart.page.get_by_role("button", name="Rerun").click()
    chart.page.get_by_text("reruns: 1").wait_for()
    chart.reported(2)
    chart.click(*chart.at(2.5, 2))
    chart.reported(0)


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


def test_the_wheel_zooms_at_the_pointer_and_leaves_the_page_alone(open_chart):
    chart = open_chart(height=500)
    chart.stage.scroll_into_view_if_needed()
    chart.page.evaluate(SPY)
    place = chart.at(7.5, 2)
    chart.stage.focus()
    chart.mouse(*place)
    scrolled = chart.page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop")
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
    assert chart.page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == scrolled


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
    chart.until("view", f"{x0:.2f}", other=True)
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
    chart.page.emulate_media(color_scheme="light")
    for _ in range(100):
        if chart.pixel(*chart.at(2.5, 2)) == CONV:
            break
        chart.page.wait_for_timeout(50)
    assert chart.pixel(*chart.at(2.5, 2)) == CONV


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


def test_two_hundred_thousand_rectangles(open_chart):
    chart = open_chart("many")
    assert chart.data("drawn") == "200000"
    assert float(chart.data("load-ms")) < 2000
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


def test_no_line_goes_through_the_name_of_another(open_chart):
    source = bundle([SHARED / "levels.js", FRONTEND / "level_names.js"])
    page = open_chart().page
    # Room above, only below, and on both sides a line too near: beyond that.
    for before, capacity, tops in (
        (380, 200, (60 - 16, 20 - 16, 200 - 16)),
        (346, 200, (60 + 3, 54 - 16, 200 - 16)),
        (346, 334, (54 - 16, 54 - 16, 66 + 3)),
    ):
        values = {"arena": 340, "bound": 340, "capacity": capacity, "before": before}
        names = ("arena = lower bound 340 B", f"before {before} B", f"capacity {capacity} B")
        assert page.evaluate(NAMES, [source, values]) == dict(zip(names, tops, strict=True))
