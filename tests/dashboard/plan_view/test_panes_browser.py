"""The tree and the details next to the chart: one selection, one step, the keyboard, and where they are."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("playwright")
pytest.importorskip("streamlit")
from memplan_engine import load, make_plan
from tests import ROOT
from tests.dashboard.plan_view.mounted_chart import AXIS, message_of
from tests.support.apptest import open_app
from tests.support.dashboard_page import DashboardPage

ROWS = """() => [...document.querySelectorAll('.tree-table tbody tr')]
    .map((row) => [row.querySelector('.label').textContent, row.querySelector('.size').textContent])"""


@cache
def message():
    """Return what the page sends to the browser for GPT-2."""
    return message_of(open_app(doc="example:gpt2"))


@cache
def buffer(name):
    graph = load(ROOT / "example_graphs" / "gpt2.json")
    return make_plan(graph, "linear_scan").problem.names.index(name)


@pytest.fixture
def chart(open_chart):
    return open_chart(message(), width=1440, height=900)


def tree(chart):
    return chart.page.evaluate(ROWS)


def row(chart, label):
    return (
        chart.root.locator(".tree-table tbody tr").filter(has=chart.page.get_by_text(label, exact=True)).first
    )


def test_the_peak_by_module_opens_where_most_of_it_is(chart):
    assert tree(chart) == [
        ["h.0", "51 MiB"], ["mlp", "48 MiB"], ["act", "36 MiB"], ["mul", "12 MiB"], ["pow", "12 MiB"],
        ["mul.2", "12 MiB"], ["c_fc", "12 MiB"], ["add", "3 MiB"],
    ]  # fmt: skip
    assert chart.root.locator(".tree-table td.size").first.get_attribute("title") == "53,477,376 B"
    # Without a selection the largest is there.
    assert "largest here" in chart.root.locator(".side .details").inner_text()
    chart.root.get_by_role("button", name="category").click()
    assert tree(chart)[0] == ["activations", "51 MiB"]
    chart.root.get_by_role("button", name="line").click()
    assert tree(chart)[0] == ["activations.py:66", "36 MiB"]


def test_row_rectangle_and_details_are_one_selection(chart):
    row(chart, "mul.2").click()
    chart.reported(buffer("mul_1"))
    details = chart.root.locator(".side .details")
    assert details.locator(".pane-title").inner_text() == "h.0.mlp.act · mul.2 mul_1"
    facts = details.inner_text()
    for fact in (
        "1 × 1,024 × 3,072 float32",
        "12,582,912 (12 MiB)",
        "steps 44 to 45, 2 steps",
        "activations.py:66",
    ):
        assert fact in facts
    # From the buffer to what its producer reads, and the row goes along.
    details.get_by_role("button", name="h.0.mlp.act · pow").first.click()
    chart.reported(buffer("pow_1"))
    assert row(chart, "pow").get_attribute("aria-selected") == "true"


def test_the_tree_is_for_the_keyboard_too(chart):
    row(chart, "h.0").focus()
    chart.page.keyboard.press("ArrowLeft")
    assert tree(chart) == [["h.0", "51 MiB"]]
    chart.page.keyboard.press("ArrowRight")
    chart.page.keyboard.press("ArrowDown")
    chart.page.keyboard.press("ArrowLeft")
    assert [label for label, _ in tree(chart)] == ["h.0", "mlp", "add"]
    chart.page.keyboard.press("ArrowDown")
    chart.page.keyboard.press("Enter")
    chart.reported(buffer("add_2"))


def test_what_can_be_done_with_a_buffer_is_reported(chart):
    row(chart, "add").click()
    details = chart.root.locator(".side .details")
    details.get_by_role("button", name="Pin").click()
    (report,) = chart.heard("action")
    assert report["buffer"] == buffer("add_2")


def test_two_steps_that_are_marked_are_compared_and_ties_are_marked(chart):
    box = chart.base.bounding_box()
    y = box["height"] - AXIS - 20
    chart.click(0.3 * box["width"], y)
    chart.page.keyboard.down("Shift")
    chart.click(0.6 * box["width"], y)
    chart.page.keyboard.up("Shift")
    step, second = (int(each) for each in chart.data("marks").split(","))
    assert 0 < step < second
    heading = chart.root.locator(".side").get_by_role("heading", name=f"Step {second} minus step {step}")
    assert heading.count() == 1
    assert {size[0] for _, size in tree(chart)} <= set("+−0")
    tie = chart.root.locator(".ties-list .tie").last
    tie.click()
    assert tie.get_attribute("aria-pressed") == "true"
    assert chart.data("marks") == f"{tie.get_attribute('data-step')},{second}"


# On the page.


@pytest.fixture
def page(dashboard_url, open_page):
    return DashboardPage(open_page(f"{dashboard_url}/?doc=example:gpt2", width=1440, height=900))


def test_what_is_done_with_a_buffer(page):
    page.root.locator(".tree-table tbody tr").filter(
        has=page.page.get_by_text("add", exact=True)
    ).first.click()
    page.eventually(lambda: page.address.get("selected"), "add_2")
    page.details.get_by_role("button", name="Pin").click()
    page.eventually(lambda: page.address.get("what_if", "").startswith("pin:add_2="), True)
    page.details.get_by_role("button", name="What if …").click()
    page.eventually(lambda: page.address.get("tab"), "What if")


def test_all_of_the_answer_is_above_the_fold_and_panes_stack_where_it_is_narrow(page):
    page.page.locator(".st-key-card_0").wait_for()
    box = page.root.locator(".side").bounding_box()
    assert box["y"] + box["height"] <= 900
    # What it is and who makes and holds it without scrolling; what comes next stands right below.
    shape, size = (page.details.locator(".facts dd").nth(i).bounding_box() for i in (0, 1))
    assert (shape["y"], shape["x"] < size["x"]) == (size["y"], True)
    holder = page.details.locator(".ops dt").get_by_text("last reader").bounding_box()
    assert holder["y"] + holder["height"] <= box["y"] + box["height"]
    row = page.page.locator(".st-key-to_take").bounding_box()
    assert 0 < row["y"] - (box["y"] + box["height"]) < 30
    assert row["y"] + row["height"] <= 900
    page.page.set_viewport_size({"width": 800, "height": 1000})
    page.eventually(
        lambda: (
            page.root.locator(".side").bounding_box()["y"]
            > page.root.locator(".column").bounding_box()["y"] + 300
        ),
        True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2_dynamic", "bert_training_default", "diff_batch_head"])
def test_the_row_of_files_is_above_the_fold_and_the_chart_follows_the_window(dashboard_url, open_page, name):
    """Sliders, a headline of three lines and the words of a teaching graph leave room for it."""
    page = DashboardPage(open_page(f"{dashboard_url}/?doc=example:{name}", width=1440, height=900))
    page.page.locator(".st-key-card_0").wait_for()
    stage_of, files = page.root.locator(".panels .stage"), page.page.locator(".st-key-to_take")

    def ends() -> tuple[int, int]:
        boxes = (each.bounding_box() for each in (stage_of, files))
        stage, row = (round(box["y"] + box["height"]) for box in boxes)
        return stage, row

    stage, row = ends()
    assert 700 < stage < row
    assert 850 < row <= 900
    page.page.set_viewport_size({"width": 1440, "height": 1100})
    page.eventually(ends, (stage + 200, row + 200))
    # And nothing is squeezed where the window has no room.
    page.page.set_viewport_size({"width": 1440, "height": 500})
    page.eventually(lambda: stage_of.bounding_box()["height"] > 250 and ends()[1] > 700, True)


@pytest.mark.slow
def test_exact_bytes_proof_certificate_and_files_are_one_row_and_the_proof_stays_open(page):
    row = page.page.locator(".st-key-to_take")
    row.get_by_text("Arena 53,477,376 B · Optimal for the graph's storages").wait_for()
    asks = row.get_by_role("button", name="Fits in …? Prove it")
    files = [row.get_by_role("button", name=name) for name in ("Offsets, CSV", "Plan, JSON", "Peak, CSV")]
    middles = [box["y"] + box["height"] / 2 for box in (each.bounding_box() for each in (asks, *files))]
    assert max(middles) - min(middles) < 2
    asks.click()
    proof = page.page.get_by_test_id("stPopoverBody")
    field = proof.get_by_role("textbox", name="Fits in")
    field.fill("40MiB")
    field.press("Enter")
    proof.get_by_text("the arena does not fit in 40 MiB (41,943,040 B), proved").wait_for()
    assert page.address["capacity"] == "40"
    page.page.get_by_text("Does not fit, 11 MiB over").first.wait_for()
    # With a capacity, too, the chips are one row, no card hides that it fits, and all is above the fold.
    page.page.keyboard.press("Escape")
    chips = page.page.locator(".st-key-figures").bounding_box()
    assert chips["height"] < 40
    for told in page.page.locator("[class*=st-key-card_] [data-testid=stCaptionContainer]").all():
        card = told.locator("xpath=ancestor::*[contains(@class, 'st-key-card_')][1]").bounding_box()
        words = told.locator("p").bounding_box()
        assert words["y"] >= card["y"]
        assert words["y"] + words["height"] <= card["y"] + card["height"] - 2
        assert told.evaluate("(box) => box.scrollWidth - box.clientWidth") <= 1
    page.page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
    side = page.root.locator(".side").bounding_box()
    assert side["y"] + side["height"] <= 900


@pytest.mark.slow
def test_a_list_without_suggestions_says_it_in_full(dashboard_url, open_page):
    page = DashboardPage(open_page(f"{dashboard_url}/?doc=example:unet_training", width=1440, height=900))
    told = page.page.get_by_text("No suggestion")
    told.wait_for()
    assert "Prove it, below the chart, finds the smallest changes" in told.inner_text()
    # Nothing of the sentence is cut off above or below.
    assert (
        told.evaluate("(p) => { const box = p.parentElement; return box.scrollHeight - box.clientHeight }")
        <= 1
    )


@pytest.mark.slow
def test_the_details_have_all_their_room_where_the_panes_stack(dashboard_url, open_page):
    page = DashboardPage(open_page(f"{dashboard_url}/?doc=example:gpt2", width=800, height=1000))
    page.details.get_by_text("last reader").wait_for()
    assert page.details.evaluate("(box) => box.scrollHeight - box.clientHeight") <= 1


@pytest.mark.slow
def test_a_lesson_leaves_room_for_its_answer_and_a_list_has_no_empty_columns(dashboard_url, open_page):
    page = DashboardPage(
        open_page(f"{dashboard_url}/?doc=example:teaching_best_fit", width=1440, height=900), wait=True
    )
    page.page.get_by_text("No suggestion").wait_for()
    box = page.root.locator(".side").bounding_box()
    assert box["y"] + box["height"] <= 900
    assert not page.root.locator("th.made").is_visible()
    page.page.get_by_role("button", name="Why 10 bytes?").click()
    page.page.get_by_test_id("stPopoverBody").get_by_text("10").first.wait_for()


def test_apply_changes_the_whole_page_and_undo_takes_it_back(page):
    """A button of a fragment runs the fragment alone, which only a browser shows."""
    chart = page.page.locator(".st-key-inspect_view")
    place = chart.bounding_box()
    page.page.locator(".st-key-card_0").get_by_role("button", name="Apply").click()
    page.eventually(lambda: page.metric("Arena"), "27 MiB")
    page.eventually(lambda: page.subtitle.startswith("27 MiB"), True)
    page.page.locator(".st-key-card_0").wait_for()
    page.settled()
    assert (page.address["in_place"], page.address["reorder"]) == ("1", "1")
    assert chart.bounding_box() == place
    page.page.locator(".st-key-applied").get_by_role("button", name="Undo").click()
    page.eventually(lambda: page.metric("Arena"), "51 MiB")
    page.settled()
    assert not {"in_place", "reorder"} & set(page.address)
    assert chart.bounding_box() == place


@pytest.mark.slow
def test_a_name_of_any_length_leaves_the_page_as_wide_as_the_window(dashboard_url, open_page, tmp_path):
    """Not even what only screen readers read makes it scroll sideways."""
    deep = ".".join(f"encoder.layers.{number}.submodule_with_a_long_name" for number in range(9))
    (tmp_path / "deep.csv").write_text(f"id,lower,upper,size\n{deep},0,3,9000\n{'x' * 5000},0,2,800\n")
    page = DashboardPage(open_page(f"{dashboard_url}/import", width=1440, height=900), wait=False)
    page.page.locator("input[type=file]").set_input_files(tmp_path / "deep.csv")
    page.root.first.wait_for()
    page.settled()
    wide = "[...document.querySelectorAll('[data-testid=stMain], html')].map((each) => each.scrollWidth)"
    assert page.page.evaluate(wide) == [1440, 1440]
    # All of the answer is above the fold.
    row = page.page.locator(".st-key-to_take").bounding_box()
    assert row["y"] + row["height"] <= 900
    page.page.get_by_role("link", name="Replay").click()
    page.page.locator(".replay-view[data-drawn]").wait_for()
    page.settled()
    assert page.page.evaluate(wide) == [1440, 1440]


@pytest.mark.slow
def test_the_tooltip_of_how_goes_when_it_opens(page):
    card = page.page.locator(".st-key-card_0")
    how = card.get_by_test_id("stPopoverButton").first
    how.wait_for()
    page.settled()
    how.hover()
    tip = page.page.get_by_test_id("stTooltipContent")
    tip.filter(has_text="What it does, and how").wait_for()
    how.click()
    page.page.get_by_test_id("stPopoverBody").wait_for()
    assert not tip.filter(visible=True).count()


@pytest.mark.slow
def test_a_change_of_buffers_is_one_row_and_leaves_the_chart_where_it_is(dashboard_url, open_page):
    page = DashboardPage(open_page(f"{dashboard_url}/?doc=example:resnet50", width=1440, height=900))
    chart = page.page.locator(".st-key-inspect_view")
    page.page.locator(".st-key-card_0").get_by_role("button", name="Apply").wait_for()
    place = chart.bounding_box()
    page.page.locator(".st-key-card_0").get_by_role("button", name="Apply").click()
    bar = page.page.locator(".st-key-what_if_bar")
    bar.get_by_text("arena 9.19 MiB → 7.66 MiB").first.wait_for()
    page.settled()
    assert chart.bounding_box() == place
    bar.get_by_role("button", name="Undo").click()
    page.eventually(lambda: page.metric("Arena"), "9.19 MiB")
    bar.get_by_role("button", name="Redo").click()
    page.eventually(lambda: page.metric("Arena"), "7.66 MiB")
    assert chart.bounding_box() == place
