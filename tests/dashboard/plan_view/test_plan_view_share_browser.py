"""What the chart measures, names at the peak, and keeps in the address."""

from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("playwright")
from memplan_dashboard.plan_view.component import FRONTEND

from memplan_engine.plotting.bundling import SHARED, bundle
from memplan_engine.units import format_bytes
from tests.dashboard.plan_view.mounted_chart import INKED

COPIES = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
CALLOUT_SCRIPT = bundle(
    [
        *(SHARED / f"{name}.js" for name in ("format", "columns", "strokes", "fitting", "levels")),
        *(FRONTEND / f"{name}.js" for name in ("labels", "level_names", "callouts")),
    ]
)
CALLOUTS = """([source, buffers, name = "", taken = [], named = [], arena = 400]) => {
    const [inked, told] = [{ width: 400, height: 400, ids: new Int32Array(160000).fill(-1) }, []];
    const isTaken = (x) => taken.some(([from, to]) => from <= x && x < to);
    inked.ids.forEach((_, i) => { if (isTaken(i % 400)) inked.ids[i] = 0; });
    const idAt = (raster, x, y) => raster.ids[y * 400 + x] ?? -1;
    const draw = new Function("idAt", source + "; return drawCallouts;")(idAt);
    const ctx = { measureText: (text) => ({ width: 6 * text.length }), beginPath() {},
        moveTo() {}, lineTo() {}, stroke() {}, strokeText() {},
        fillRect() { throw new Error("a plate hides what is below"); },
        fillText: (text, x, y) => told.push([text, x, y]) };
    const column = (at) => Float64Array.from(buffers, (buffer) => buffer[at]);
    const data = { count: buffers.length, start: column(0), end: column(1), offset: column(2),
        size: column(3), nameOf: (i) => name || `b${i}`, peakStep: 50, arena, bound: arena, capacity: null };
    const parts = { left: 0, top: 0, bottom: 400, right: 400, plotWidth: 400 };
    const view = { x0: 0, x1: 100, y0: 0, y1: 400 };
    const scales = { x: (step) => 4 * step, y: (bytes) => 400 - bytes, stepWidth: 4 };
    return [draw(ctx, data, parts, scales, view, {}, inked, named), told];
}"""


def test_sizes_read_the_same_in_a_browser_as_everywhere(empty_page):
    # 15.625 and 15.635 MiB lie between two hundredths; others do not, or just end a unit.
    sizes = [
        16_384_000,
        16_394_486,
        128_000,
        5_242_880 + 5_243,
        1_048_570,
        1_048_571,
        1_023,
        2**40 // 8 + 2**27,
    ]
    sizes += [eighths * 2**17 for eighths in range(1, 200)]
    source = bundle([SHARED / "format.js"]) + "; return formatBytes;"
    shown = empty_page.evaluate("([source, sizes]) => sizes.map(new Function(source)())", [source, sizes])
    assert shown == [format_bytes(size) for size in sizes]


def in_address(chart):
    return parse_qs(urlsplit(chart.page.url).query).get("view", [""])[0]


def drag(chart, start, end):
    box = chart.base.bounding_box()
    chart.page.mouse.move(box["x"] + start[0], box["y"] + start[1])
    chart.page.mouse.down()
    chart.page.mouse.move(box["x"] + end[0], box["y"] + end[1], steps=3)
    chart.page.mouse.up()


def test_a_drag_measures_bytes_and_steps(open_chart):
    chart = open_chart()
    button = chart.root.get_by_role("button", name="Measure bytes × steps with a drag (m)")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    before = chart.data("view")
    overlay = chart.page.locator(".panels canvas.overlay").first
    drag(chart, chart.at(2.3, 8), chart.at(5.6, 2))
    # Steps are whole, 2 to 5; bytes are where the pointer was.
    words = chart.page.locator(".spoken[aria-live]").inner_text()
    size, steps = words.split(" × ")
    assert steps == "4 steps"
    assert float(size.removesuffix(" MiB")) == pytest.approx(6, abs=0.1)
    assert chart.data("view") == before
    chart.page.mouse.move(2, 2)
    inked = overlay.evaluate(INKED)
    assert inked > 0
    chart.press("Escape")
    assert button.get_attribute("aria-pressed") == "false"
    assert overlay.evaluate(INKED) == 0
    # A held key measures once.
    chart.stage.focus()
    chart.page.keyboard.down("m")
    drag(chart, chart.at(1, 8), chart.at(3, 2))
    chart.page.keyboard.up("m")
    assert button.get_attribute("aria-pressed") == "false"
    assert overlay.evaluate(INKED) > 0


def test_slivers_at_the_peak_are_named_beside_themselves(empty_page):
    # Wide enough for a name; not at the peak; a fiftieth of the arena and less; then five.
    buffers = [
        [30, 60, 0, 60],
        [20, 22, 0, 60],
        [50, 51, 60, 7],
        *([50, 51, 70 + 40 * i, 30 + i] for i in range(5)),
    ]
    spots, told = empty_page.evaluate(CALLOUTS, [CALLOUT_SCRIPT, buffers])
    assert [text for text, _, _ in told] == ["b7 34 B", "b6 33 B", "b5 32 B", "b4 31 B"]
    for text, x, y in told:
        top = 400 - (70 + 40 * (int(text[1]) - 3) + (30 + int(text[1]) - 3) / 2)
        assert abs(y - top) < 30
        assert x >= 51 * 4 or x < 50 * 4
    # Five at one height get places of their own.
    spots, told = empty_page.evaluate(CALLOUTS, [CALLOUT_SCRIPT, [[50, 51, 100, 30 + i] for i in range(5)]])
    places = {(spot["x"], spot["y"]) for spot in spots}
    assert len(places) == len(told) == 4


def test_the_name_of_a_sliver_leaves_out_its_module_where_that_covers_less(empty_page):
    # One rectangle in the middle; beside it nothing is taken, or only 120 to 300 are free.
    buffers, name = [[50, 51, 100, 30]], "encoder.0.mlp · gelu"
    for taken, text in (([], f"{name} 30 B"), ([[300, 400], [0, 120]], "gelu 30 B")):
        _, told = empty_page.evaluate(CALLOUTS, [CALLOUT_SCRIPT, buffers, name, taken])
        assert [each for each, _, _ in told] == [text]


def test_the_name_of_a_sliver_stands_in_two_lines_between_columns_that_are_near(empty_page):
    # Free are 160 to 200 left of the rectangle and 204 to 260 right of it: "gelu" and "30 B" have 24 pixels.
    taken = [[0, 160], [260, 400]]
    spots, told = empty_page.evaluate(
        CALLOUTS, [CALLOUT_SCRIPT, [[50, 51, 100, 30]], "encoder.0.mlp · gelu", taken]
    )
    assert [text for text, _, _ in told] == ["gelu", "30 B"]
    assert [y for _, _, y in told] == [279, 293]  # a line is 14 high; a pixel lower, as above
    assert {spot["x"] for spot in spots} == {204 + 5}
    assert [spot["y"] for spot in spots] == [271, 285]
    _, told = empty_page.evaluate(CALLOUTS, [CALLOUT_SCRIPT, [[50, 51, 100, 30]], "gelu", taken])
    assert [text for text, _, _ in told] == ["gelu", "30 B"]


def test_the_name_of_a_sliver_stands_on_no_other_name_and_no_level(empty_page):
    # Its middle is 300 pixels down; a name is written at the middle of 14, a pixel lower.
    buffer = [[50, 51, 80, 40]]
    (spot,), [[_, _, y]] = empty_page.evaluate(CALLOUTS, [CALLOUT_SCRIPT, buffer])
    assert (spot["x"], y) == (204 + 16, 301)
    (other,), _ = empty_page.evaluate(CALLOUTS, [CALLOUT_SCRIPT, buffer, "", [], [spot]])
    assert other["x"] + other["width"] < spot["x"] or abs(other["y"] - spot["y"]) >= 14
    _, [[_, _, y]] = empty_page.evaluate(CALLOUTS, [CALLOUT_SCRIPT, buffer, "", [], [], 98])
    assert abs(y - 1 - (400 - 98)) > 7


def test_the_zoom_is_in_the_address_and_comes_back_from_there(open_chart):
    chart = open_chart()
    chart.press("+")
    chart.until("zoomed", "true")
    chart.page.wait_for_url("**view=**")
    assert in_address(chart).startswith("1,9,")
    zoomed = chart.view()
    again = open_chart(view=in_address(chart))
    # Whole bytes.
    assert again.view() == pytest.approx(zoomed, abs=1)
    again.press("0")
    again.page.wait_for_url(lambda url: "view=" not in url)
    assert "scene=plain" in again.page.url


VIEWED = """([source, views]) => views.map((view) => {
    const url = new URL(location.href);
    url.searchParams.set("view", view);
    history.replaceState(null, "", url);
    return new Function(source + "; return viewInAddress;")()({ x0: 0, x1: 10, y0: 0, y1: 99 });
})"""


def test_a_view_that_makes_no_sense_shows_everything(open_chart):
    nonsense = ("1,2,3", "a,b,c,d", "9,1,0,5", "1e999,2,3,4", "50,60,0,9", ",,,", "0,1,nan,4")
    chart = open_chart(view=nonsense[0])
    assert chart.data("zoomed") == "false"
    source = bundle([SHARED / "viewport.js", FRONTEND / "address.js"])
    found = chart.page.evaluate(VIEWED, [source, [*nonsense, "1,9,0,99"]])
    assert found == [None] * len(nonsense) + [{"x0": 1, "x1": 9, "y0": 0, "y1": 99}]


def test_a_link_to_all_that_is_shown_is_copied(open_chart):
    chart = open_chart()
    chart.page.evaluate(f"() => {{ {COPIES} }}")
    chart.press("+")
    chart.until("zoomed", "true")
    # At once, before the address has settled.
    chart.root.get_by_role("button", name="Copy the address of what is shown").click()
    chart.page.locator(".spoken").filter(has_text="Link copied.").wait_for(state="attached")
    copied = chart.page.evaluate("window.copied")
    assert "view=1%2C9" in copied
    assert "scene=plain" in copied


def test_the_picture_is_told_in_a_table(open_chart):
    chart = open_chart()
    table = chart.page.locator(f"#{chart.base.get_attribute('aria-details')}")
    assert table.locator("caption").inner_text() == "Largest buffers at the peak, step 0"
    rows = [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert rows == [
        ["above", "6 MiB", "4 MiB", "0 to 9"],
        ["<script>window.hacked = 1</script>", "4 MiB", "0 B", "0 to 4"],
    ]
