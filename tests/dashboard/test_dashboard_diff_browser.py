"""The Diff page in a browser: both panels drawn, one selection in both, switches, names as text."""

import pytest

from tests import ROOT

pytest.importorskip("playwright")
from memplan_engine import load, make_plan
from tests.support.dashboard_page import CHART, DashboardPage

EXAMPLES = ROOT / "example_graphs"
KEPT = [(0.12, 0.45)]
NAME = "<img src=x onerror=alert(1)>"
COLUMNS = "id,lower,upper,size\n"


@pytest.fixture
def diff_page(dashboard_url, open_page):
    def open_one(parameters="", **options):
        return DashboardPage(
            open_page(f"{dashboard_url}/diff?strategy=greedy_by_size{parameters}", **options)
        )

    return open_one


COUNT = f"""([panel, layer, color]) => {{
    const canvas = {CHART}.querySelectorAll(`.panel canvas.${{layer}}`)[panel];
    const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (const pixel of new Uint32Array(image.data.buffer)) count += color ? pixel === color : pixel !== 0;
    return count;
}}"""


def pixels(page, panel, color):
    """How many pixels of a panel have a colour "#rrggbb"."""
    red, green, blue = bytes.fromhex(color[1:])
    return page.page.evaluate(COUNT, [panel, "base", 255 << 24 | blue << 16 | green << 8 | red])


def outlined(page):
    """Whether each panel's overlay shows a selection."""
    return [page.page.evaluate(COUNT, [panel, "overlay", 0]) > 0 for panel in (0, 1)]


def in_view(page, plan, buffer):
    """Whether the view reaches over the whole of a buffer."""
    x0, x1, y0, y1 = map(float, page.data("view").split(","))
    start, end = plan.problem.start[buffer], plan.problem.end[buffer]
    low = plan.offsets[buffer]
    return x0 <= start and end <= x1 and y0 <= low and low + plan.problem.size[buffer] <= y1


@pytest.mark.slow
def test_a_click_goes_to_both_panels_and_a_switch_fades_the_rest(diff_page):
    page = diff_page(height=1500)
    assert page.data("drawn") == "55"
    assert page.titles == ["base: diff_kept_view_base", "head: diff_kept_view_head"]
    # The buffer that is kept is 6 steps long in base and 29 in head, and has its pattern on both sides.
    yellow = [pixels(page, panel, "#ccbb44") for panel in (0, 1)]
    assert 4 < yellow[1] / yellow[0] < 6
    assert pixels(page, 0, "#9b8e34") > 100
    assert outlined(page) == [False, False]
    page.page.mouse.click(*page.find_rectangle(KEPT))
    page.eventually(lambda: page.address.get("changed"), "head:relu")
    page.page.mouse.move(5, 5)
    page.settled()
    assert outlined(page) == [True, True]
    assert "steps 1 to 29, 29 in all" in page.details.inner_text()
    switch = page.root.get_by_role("button", name="longer-lived")
    assert switch.get_attribute("aria-pressed") == "false"
    grey = pixels(page, 1, "#bbbbbb")
    switch.click()
    page.eventually(lambda: page.address.get("kinds"), "longer")
    page.eventually(lambda: switch.get_attribute("aria-pressed"), "true")
    page.settled()
    assert pixels(page, 1, "#bbbbbb") < grey / 10
    assert pixels(page, 1, "#ccbb44") == yellow[1]
    # A row goes to both panels, too; what only the base has is outlined only there.
    page.page.get_by_role("tab", name="Changed buffers").click()
    page.settled()
    switch.click()
    page.eventually(lambda: page.address.get("kinds"), None)
    page.settled()
    page.page.mouse.move(*page.find_rectangle(KEPT))
    page.root.locator(".stage").first.focus()
    for _ in range(4):
        page.page.mouse.wheel(0, -240)
    page.eventually(lambda: page.data("zoomed"), "true")
    base = make_plan(load(EXAMPLES / "diff_kept_view_base.json"), "greedy_by_size")
    clone = base.problem.names.index("clone")
    assert not in_view(page, base, clone)
    table = page.page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    table.click(position={"x": 18, "y": 36 + 35 + 17})
    page.eventually(lambda: page.address.get("changed"), "base:clone")
    page.page.mouse.move(5, 5)
    page.eventually(lambda: outlined(page), [True, False])
    assert in_view(page, base, clone)


@pytest.mark.slow
def test_names_are_text_and_the_strip_tells_the_difference(diff_page):
    page = diff_page(height=1500)
    page.page.get_by_role("button", name="Upload").click()
    fields = page.page.locator("input[type=file]")
    for place, size in ((0, 100), (1, 300)):
        content = f"{COLUMNS}{NAME},0,4,{size}\nplain,1,3,50\n".encode()
        file = {"name": f"side{place}.csv", "mimeType": "text/csv", "buffer": content}
        fields.nth(place).set_input_files(file)
        page.page.get_by_test_id("stFileUploader").get_by_text(f"side{place}.csv").wait_for()
        page.settled()
    page.page.keyboard.press("Escape")
    page.eventually(lambda: page.metric("Arena, base → head"), "150 B → 350 B")
    page.settled()
    page.page.mouse.click(*page.find_rectangle([(0.2, 0.99), (0.2, 0.9)]))
    page.eventually(lambda: page.address.get("changed"), f"head:{NAME}")
    page.details.get_by_text(NAME).first.wait_for()
    assert page.page.locator("img[src=x]").count() == 0
    strip = page.root.locator(".difference .stage")
    strip.hover(position={"x": 400, "y": 40})
    lines = page.root.locator(".tooltip").inner_text().splitlines()
    assert lines[0].endswith("200 B more")
    assert lines[1] in ("live 100 B in base, 300 B in head", "live 150 B in base, 350 B in head")
