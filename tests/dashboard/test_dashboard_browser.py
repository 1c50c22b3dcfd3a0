"""The dashboard as a person uses it: pick, click, search, upload, share; in a real browser."""

import re
import zipfile

import pytest

from tests import ROOT

pytest.importorskip("playwright")
from memplan_engine import known_strategies, load, make_plan
from memplan_engine.units import format_bytes
from tests.support.browser import open_tab
from tests.support.dashboard_page import DashboardPage

EXAMPLES = ROOT / "example_graphs"
PLACES = [(0.1 + x / 60, 0.97 - y / 30) for y in range(3) for x in range(50)]
CSV = "id,lower,upper,size\na,0,4,1048576\nb,1,3,2097152\nc,2,4,1048576\n"
OVERFLOWING = """() => {
    const main = document.querySelector('[data-testid=stMain]');
    const cut = [...main.querySelectorAll('[data-testid=stMetricValue], [data-testid=stMetricLabel]')]
        .filter((each) => [each, ...each.querySelectorAll('*')].some((e) => e.scrollWidth > e.clientWidth + 1
            && getComputedStyle(e).overflowX !== 'visible'));
    const wide = [...main.querySelectorAll('*')].filter((each) =>
        each.getBoundingClientRect().right > window.innerWidth + 1
        && !each.closest('[data-testid=stDataFrame], [data-testid=stCode], .draglayer')
        && !each.closest('[class*="st-key-suggestions"]'));
    return [main.scrollWidth - main.clientWidth, cut.map((e) => e.innerText),
        wide.map((e) => e.outerHTML.slice(0, 90))];
}"""
NAMELESS = """() => [...document.querySelectorAll('input, button, textarea, select, canvas, a')]
    .filter((e) => e.offsetParent !== null && e.getAttribute('aria-hidden') !== 'true')
    .filter((e) => !(e.ariaLabel || e.labels?.length || e.innerText?.trim()
        || e.getAttribute('aria-labelledby') || e.title || e.querySelector('svg title, img[alt]')
        || e.closest('[aria-label]')
        || e.closest('[data-testid=stDataFrame], .js-plotly-plot')))
    .map((e) => e.outerHTML.slice(0, 160))"""


@pytest.fixture
def dashboard(dashboard_url, open_page):
    def open_one(address="/", **options):
        return DashboardPage(open_page(f"{dashboard_url}{address}", **options))

    return open_one


def row_of(page, row):
    """Click the box of a row in the table."""
    table = page.page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    table.click(position={"x": 18, "y": 36 + 35 * row + 17})
    page.settled()


def click_a_rectangle(page):
    x, y = page.find_rectangle(PLACES)
    page.page.mouse.click(x, y)
    page.drawn("selected", "", other=True)
    page.details.wait_for()
    page.settled()


def test_strategy_colours_search_and_pointer(dashboard):
    page = dashboard("/?doc=example:resnet50")
    assert page.title == "auto"
    page.select("Strategy", "linear_scan")
    page.titled("linear_scan")
    expected = make_plan(load(EXAMPLES / "resnet50.json"), "linear_scan").arena_bytes
    page.eventually(lambda: page.metric("Arena"), format_bytes(expected))
    page.eventually(lambda: page.address, {"doc": "example:resnet50", "strategy": "linear_scan"})
    drawn = page.data("drawn")
    page.select("Colour by", "lifetime")
    page.root.locator(".legend .label").filter(has_text=" steps").first.wait_for()
    for pattern, says in [("/(a+/", "is not a regular expression"), (r"/^(\w+)+\d+[^\w]!$/", "none")]:
        page.find(pattern)
        page.page.get_by_text(says).first.wait_for()
        page.eventually(lambda: page.address["find"], pattern.strip("/"))
    assert page.data("drawn") == drawn
    page.page.mouse.move(*page.find_rectangle(PLACES))
    lines = page.root.locator(".tooltip").inner_text().splitlines()
    assert "at offset" in lines[1]
    assert lines[-1].startswith("step ")


@pytest.mark.slow
def test_every_colouring_has_its_legend_and_every_pattern_its_answer(dashboard):
    page = dashboard()
    for colouring, entry in [
        ("size", "≥ "),
        ("lifetime", " steps"),
        ("role", "activation"),
        ("module", "transformer"),
        ("op kind", "aten."),
    ]:
        page.select("Colour by", colouring)
        page.root.locator(".legend .label").filter(has_text=entry).first.wait_for()
        assert page.data("drawn") == "217"
    for pattern, says in [
        ("/add_1$/", "1 · 3 MiB"),
        ("/(a+/", "is not a regular expression"),
        ("/a{1000000000}/", "repeats more than 10,000 times"),
        ("/" + "(" * 80 + ")" * 80 + "/", "217 · "),
        (r"/^(\w+)+\d+[^\w]!$/", "none"),
    ]:
        page.find(pattern)
        page.page.get_by_text(says).first.wait_for()
        assert page.data("drawn") == "217"
        page.eventually(lambda: page.address["find"], pattern.strip("/"))


def test_chart_details_and_table_share_one_selection(dashboard):
    page = dashboard("/?doc=example:gpt2", height=1900)
    click_a_rectangle(page)
    name = page.address["selected"]
    text = page.details.inner_text()
    for word in (name, "shape", "bytes", "offset", "lifetime", "producer", "last reader", "module"):
        assert word in text
    first = page.data("selected")
    row_of(page, 3)
    page.drawn("selected", first, other=True)
    page.eventually(lambda: page.address["selected"], "mul_1")
    page.details.get_by_text("mul_1", exact=True).first.wait_for()
    row_of(page, 3)
    page.unselected()
    assert "selected" not in page.address


@pytest.mark.slow
def test_a_selection_ends_with_its_graph_and_follows_from_page_to_page(dashboard):
    page = dashboard("/?doc=example:gpt2")
    click_a_rectangle(page)
    name = page.address["selected"]
    page.visit("Compare")
    page.eventually(lambda: page.address, {"doc": "example:gpt2", "selected": name})
    assert page.page.get_by_role("combobox", name="Graph").first.input_value() == "gpt2"
    page.root.locator(".stage").first.focus()
    page.page.keyboard.press("Escape")
    page.drawn("selected", "")
    page.settled()
    page.visit("Inspect")
    page.unselected()
    click_a_rectangle(page)
    page.select("Graph", "resnet50")
    page.unselected()
    page.eventually(lambda: page.address, {"doc": "example:resnet50"})


@pytest.mark.slow
def test_the_address_restores_everything_in_another_browser(dashboard, open_page):
    page = dashboard("/?doc=example:resnet50")
    page.select("Strategy", "greedy_by_area")
    page.select("Colour by", "lifetime")
    page.find("relu")
    page.type("Fits in", "20.125MiB")
    click_a_rectangle(page)
    wanted = page.address
    assert set(wanted) == {"doc", "strategy", "colour", "find", "capacity", "selected"}
    assert wanted["capacity"] == "20.125"
    selected = page.data("selected")
    for other in (page, DashboardPage(open_page(page.page.url))):
        if other is page:
            page.page.reload()
            page.settled()
        other.drawn("selected", selected)
        assert other.title == "greedy_by_area"
        assert other.find_field.input_value() == "relu"
        assert other.page.get_by_text("to spare").count()
        assert wanted["selected"] in other.details.inner_text()
        assert other.address == wanted


def test_strategies_side_by_side(dashboard):
    page = dashboard("/compare?doc=example:teaching_best_fit", height=1400)
    assert page.titles == ["auto", "greedy_by_size", "linear_scan"]
    overlays = page.root.locator(".panels canvas.overlay")
    inked = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(value => value)"
    page.find_rectangle(PLACES)
    assert all(overlay.evaluate(inked) for overlay in overlays.all())
    assert page.root.locator(".tooltip .more").count() == 3  # the two other offsets, and the step
    page.page.get_by_text("All strategies").wait_for()
    page.page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for(state="attached")
    drawn = page.page.locator(".js-plotly-plot .scatterlayer .trace").count()
    assert drawn == len(known_strategies()) - 1  # not naive
    for left in (["auto", "greedy_by_size"], ["auto"], []):
        page.page.get_by_label(re.compile("^Remove ")).last.click()
        page.settled()
        if left:
            page.page.wait_for_function(
                "count => document.querySelector('[data-testid=stBidiComponentIsolated]').shadowRoot"
                ".querySelectorAll('.panel').length === count",
                arg=len(left),
            )
            assert page.titles == left
    page.eventually(lambda: page.address["compare"], "")
    assert page.alerts == ["Pick two to four strategies to compare side by side."]
    page.page.get_by_text("All strategies").wait_for()


BAD_UPLOADS = {
    "empty.csv": (b"", "empty"),
    "garbage.bin": (bytes(range(256)) * 40, "unknown file format"),
    "row.csv": (CSV.encode() + b"d,3,2,5\n", "line 5"),
    "columns.csv": (b"id,size\na,1\n", "lower"),
    "nan.csv": (b"id,lower,upper,size\na,0,1,NaN\n", "line 2, field size"),
    "twice.csv": (CSV.encode() + b"a,0,1,5\n", "line 5, field id"),
    "latin.csv": ("id,lower,upper,size\n\u00e9,0,1,5\n".encode("latin-1"), "UTF-8"),
    "broken.json": (b'{"format": "memplan/graph", ', "broken.json"),
    "cut.onnx": ((EXAMPLES / "squeezenet.onnx").read_bytes()[:5000], "cut.onnx"),
    "cut.pt2": (b"PK\x03\x04" + b"\0" * 200, "cut.pt2"),
    "evil.pkl": (b"\x80\x04cos\nsystem\n(S'true'\ntR.", "the global os.system"),
    "cut.pickle": ((EXAMPLES / "cuda_snapshot.pickle").read_bytes()[:5000], "cut short"),
}


@pytest.mark.slow
def test_bad_uploads_are_explained_and_the_open_plan_stays(dashboard, tmp_path):
    page = dashboard("/import?doc=example:resnet50&strategy=greedy_by_area")
    bomb = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/models/model.json", b" " * 300_000_000)
    uploads = {**BAD_UPLOADS, "bomb.pt2": (bomb.read_bytes(), "bomb.pt2")}
    for name, (content, says) in uploads.items():
        page.upload(name, content)
        page.page.get_by_test_id("stAlert").filter(has_text=says).first.wait_for()
        assert len(page.alerts) == 1, (name, page.alerts)
        assert page.page.get_by_test_id("stException").count() == 0
        assert page.page.get_by_text("Open now: resnet50.json, greedy_by_area").is_visible()
        assert page.title == "greedy_by_area"
    page.visit("Inspect")
    page.eventually(lambda: page.address, {"doc": "example:resnet50", "strategy": "greedy_by_area"})
    page.open_list("Graph")
    page.page.get_by_role("option", name="resnet50", exact=True).wait_for()
    shown = page.page.get_by_role("option").all_inner_texts()
    assert not set(shown) & set(uploads)


@pytest.mark.slow
def test_a_long_list_says_that_it_is_being_read(dashboard, tmp_path):
    rows = (f"b{each},{each},{each + 3},{64 + each % 999}" for each in range(150_000))
    (tmp_path / "long.csv").write_text("\n".join(("id,lower,upper,size", *rows)))
    page = dashboard("/import")
    page.page.locator("input[type=file]").set_input_files(tmp_path / "long.csv")
    page.page.get_by_text("Reading long.csv …").wait_for()
    page.eventually(lambda: page.address.get("doc", "").startswith("upload:"), True)
    page.page.get_by_text("Reading long.csv …").wait_for(state="detached")


@pytest.mark.slow
def test_an_upload_is_previewed_opened_and_this_browsers_only(dashboard, open_page, chromium):
    page = dashboard("/import?doc=example:gpt2")
    page.upload("mine.csv", CSV)
    # The page leads on to Inspect by itself; until then Back would be taken back.
    page.page.wait_for_function("() => location.pathname === '/'")
    page.page.get_by_text("Fragmentation at peak").first.wait_for()
    page.settled()
    page.page.go_back()
    page.page.get_by_text("Open now: mine.csv, auto · a list of buffers").wait_for()
    page.eventually(lambda: page.metric("buffers"), "3")
    page.settled()
    page.page.go_back()
    page.page.get_by_text("Open now: gpt2.json, auto").wait_for()
    page.settled()
    for _ in range(2):
        page.page.go_forward()
        page.settled()
    page.page.get_by_text("Fragmentation at peak").first.wait_for()
    page.settled()
    page.eventually(lambda: page.metric("Arena"), "4 MiB")
    assert page.address["doc"].startswith("upload:")
    page.page.reload()
    page.settled()
    page.eventually(lambda: page.metric("Arena"), "4 MiB")
    tab = open_tab(chromium, page.page.url, 1280, 800, "light", page.page.context)
    second = DashboardPage(tab)
    second.eventually(lambda: second.metric("Arena"), "4 MiB")
    second.page.close()
    stranger = DashboardPage(open_page(page.page.url))
    stranger.page.get_by_text("no such file").wait_for()
    stranger.open_list("Graph")
    stranger.page.get_by_role("option").first.wait_for()
    assert stranger.page.get_by_text("mine.csv").count() == 0
    stranger.page.keyboard.press("Escape")
    stranger.select("Strategy", "naive")
    stranger.titled("naive")
    assert (page.data("drawn"), page.title) == ("3", "auto")


@pytest.mark.slow
def test_a_finished_plan_that_overlaps_is_drawn_and_its_violations_listed(dashboard):
    page = dashboard("/import?doc=example:gpt2")
    page.upload("theirs.csv", "id,lower,upper,size,offset\na,0,4,10,0\nb,1,3,20,5\nc,2,4,10,64\n")
    page.page.get_by_text("Not valid: 1 violation").wait_for()
    page.settled()
    assert (page.title, page.data("drawn")) == ("imported", "3")
    assert page.subtitle == "74 B · not valid"
    assert page.page.get_by_text("a and b overlap at steps 1–2 in bytes 5–9 (5 bytes)").is_visible()
    assert page.address["strategy"] == "imported"
    page.visit("Compare")
    page.eventually(lambda: page.titles[:1], ["imported"])


@pytest.mark.slow
def test_the_keyboard_alone_selects_and_clears(dashboard):
    page = dashboard()
    page.page.get_by_label("Fits in", exact=True).focus()
    for _ in range(60):
        page.page.keyboard.press("Tab")
        if page.page.evaluate("document.activeElement.shadowRoot?.activeElement?.className") == "stage":
            break
    page.page.keyboard.press("ArrowUp")
    page.details.wait_for()
    page.settled()
    page.eventually(lambda: page.address.get("selected"), "addmm_2")
    page.page.keyboard.press("Escape")
    page.unselected()


NARROW = (
    ("/?doc=example:teaching_gaps&selected=a&capacity=60", "light"),
    ("/?selected=add_4&capacity=60", "light"),
    ("/?doc=example:resnet50&selected=relu_3&capacity=20", "dark"),
    ("/compare", "light"),
    ("/import", "dark"),
    ("/diff?changed=head:relu&strategy=linear_scan", "light"),
    ("/?doc=example:gpt2_dynamic&tab=Sizes&symbols=seq=128", "light"),
    ("/?doc=example:bert_training_default&tab=Training&other=example:bert_training_min_cut", "dark"),
    ("/?doc=example:squeezenet&tab=Reuse", "light"),
    ("/?doc=example:mobilenet_v1_tflite&strategy=partition&tab=Shared+objects", "dark"),
)
"""Addresses and colour schemes; the first is quick, the others are marked slow."""


@pytest.mark.parametrize(
    ("address", "scheme"),
    [NARROW[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in NARROW[1:])],
)
def test_nothing_is_cut_at_800_pixels_and_every_control_has_a_name(dashboard, address, scheme):
    page = dashboard(address, width=800, height=1000, scheme=scheme)
    assert page.page.evaluate(OVERFLOWING) == [0, [], []]
    assert page.page.evaluate(NAMELESS) == []
    page.page.set_viewport_size({"width": 1280, "height": 800})
    page.settled()
    assert page.page.evaluate(NAMELESS) == []
