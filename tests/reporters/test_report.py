"""The report: small, self-contained, the same each time, right in a browser, and inert whatever the names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import (
    Gap,
    InputError,
    ReportNotes,
    adopt,
    compare,
    load,
    make_plan,
    make_problem,
    write_report,
)
from memplan_engine.plotting import strip_lines
from memplan_engine.reporters.html import report_data
from memplan_engine.reporters.html.report_data import script_json, shortened
from memplan_engine.reporters.html.report_html import MOST_CONTRIBUTORS, to_html
from tests import ROOT
from tests.support.scratch_graphs import HELD, scratch_plan

HOSTILE = (
    "</script><script>window.hit=1;alert(1)</script><!--<img src=x onerror=alert(2)>"
    "\u2028\u2029\x00\ud800${x}$y&lt;"
)
TYPES = {"u1": np.uint8, "u4": np.uint32, "i4": np.int32, "f8": np.float64}

#   steps     0   1   2   3   4     The optimum is 170, the bytes live at step 3.
#   a (100)   ├───────────┤
#   b  (50)       ├───────────┤
#   c (120)               ├───────┤
PROBLEM = make_problem([0, 1, 3], [3, 4, 5], [100, 50, 120], names=["a", "b", "c"], name="three")
PLAN = replace(adopt(PROBLEM, np.array([0, 120, 0])), seconds=0.25)


class Elements(HTMLParser):
    """Every element with its attributes, and the text inside of each kind."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text, self.open = [], {}, []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        for tag in self.open[-1:]:
            self.text.setdefault(tag, []).append(data)


def data_of(page):
    """The data block, its columns decoded."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    values = json.loads(text)
    run = zlib.decompress(base64.b64decode(values["blob"]))

    def column(entry):
        kind, at, length, unit = entry
        values = np.frombuffer(run, TYPES[kind], length, at)
        return values if unit == 1 else values.astype(object) * unit

    ends, text = column(values["names"]["ends"]), column(values["names"]["text"]).tobytes()
    names = [text[a:b].decode() for a, b in zip([0, *ends[:-1]], ends, strict=True)] if len(ends) else []
    return values, column, names


def many(n, seed=0):
    draw = np.random.default_rng(seed)
    start = draw.integers(0, n, n)
    names = [f"model.layers.{i % 96}.self_attn.block_{i}.output_{draw.integers(10**9)}" for i in range(n)]
    sizes = draw.integers(1, 2**20, n)
    return make_problem(start, start + 1 + draw.geometric(0.02, n), sizes, names=names)


# ---- what is in it


def test_the_chart_has_the_columns_of_the_plan():
    values, column, names = data_of(to_html(PLAN))
    assert names == ["a", "b", "c"]
    assert (values["arena"], values["bound"], values["peakStep"], values["steps"]) == (170, 170, 3, 5)
    assert column(values["start"]).tolist() == [0, 1, 3]
    assert column(values["end"]).tolist() == [3, 4, 5]
    assert column(values["offset"]).tolist() == [0, 120, 0]
    assert column(values["size"]).tolist() == [100, 50, 120]
    assert column(values["profileStart"]).tolist() == [0, 1, 3, 4]
    assert column(values["profileLive"]).tolist() == [100, 150, 170, 120]
    assert column(values["profileHigh"]).tolist() == [100, 170, 170, 120]
    assert [each["name"] for each in values["colourings"]] == ["size", "lifetime"]
    assert values["owner"] is None


def test_buffers_with_gaps_are_pieces_with_owners():
    problem = make_problem([0, 0], [10, 10], [64, 8], gaps={0: (Gap(2, 4),)}, names=["g", "h"])
    values, column, _ = data_of(to_html(make_plan(problem)))
    assert column(values["owner"]).tolist() == [0, 0, 1]
    assert column(values["end"]).tolist() == [2, 10, 10]


@pytest.mark.parametrize("size", [2**40 + 1, 3 * 2**60])
def test_large_sizes_are_exact(size):
    values, column, _ = data_of(to_html(make_plan(make_problem([0], [1], [size]))))
    assert int(column(values["size"])[0]) == size


def test_the_tables_say_what_the_engine_says():
    graph = load(ROOT / "example_graphs" / "gpt2.json")
    plan, naive, scan = compare(graph, ["greedy_by_size", "naive", "linear_scan"])
    page = to_html(plan, [naive, scan], ReportNotes("gpt2.json", "memplan report gpt2.json", "2026-01-02"))
    text = unescape(re.sub(r"<[^>]+>", " ", page))
    for said in (
        "51 MiB", "1.63 GiB", "11.8 %", "transformers/activations.py:66", "transformer.h.0.mlp.act",
        "memplan report gpt2.json", "2026-01-02", plan.problem.fingerprint, "live at step 44",
        "Optimal for the graph's storages: the arena equals the live bytes at step 44 (5 buffers); ",
    ):  # fmt: skip
        assert said in text, said
    assert re.findall(r"<tr[^>]*><td>(\w+)</td>", page) == ["greedy_by_size", "linear_scan", "naive"]
    assert page.count('<tr class="chosen">') == 1


def test_all_plans_are_measured_against_the_best_bound():
    """One of them has proved 200: the other, which meets the bound of 170 that needs no search, does not."""
    better = replace(PLAN, strategy="other", bound=replace(PLAN.bound, nbytes=175))
    page = to_html(replace(PLAN, offsets=np.array([0, 150, 0])), [better])
    assert data_of(page)[0]["bound"] == 175


def test_plans_of_two_problems_are_refused():
    with pytest.raises(InputError, match="different problems"):
        to_html(PLAN, [make_plan(make_problem([0], [1], [1]))])


def test_a_placement_that_is_not_valid_says_so_and_is_not_called_optimal():
    page = to_html(adopt(PROBLEM, np.array([0, 0, 50])))
    assert "Not valid: 1 violation found by the validator." in page
    assert '<p class="certificate ">' in page


def test_nothing_to_place_is_a_report_too():
    page = to_html(make_plan(make_problem([], [], [])))
    assert "There is nothing to place." in page


def test_many_contributors_are_summed_up():
    n = MOST_CONTRIBUTORS + 20
    page = to_html(make_plan(make_problem([0] * n, [1] * n, [16] * n)))
    assert page.count('<tr class="link"') == MOST_CONTRIBUTORS
    assert "and 20 more" in page


@given(st.text(max_size=400))
def test_names_are_cut_in_the_middle(text):
    cut = shortened(text)
    assert len(cut) <= 120
    assert cut == text if len(text) <= 120 else (cut[0], cut[-1]) == (text[0], text[-1])


# ---- size, determinism, what it may do


def test_ten_thousand_buffers_take_less_than_three_megabytes():
    assert len(to_html(make_plan(many(10_000), "greedy_by_size")).encode()) < 3_000_000


def test_beyond_what_a_page_should_hold_only_the_largest_have_names(monkeypatch):
    monkeypatch.setattr(report_data, "NAMES_FOR_ALL", 9)
    monkeypatch.setattr(report_data, "NAMES_BY_AREA", 3)
    values, column, names = data_of(to_html(make_plan(make_problem([0] * 10, [1] * 10, range(1, 11)))))
    assert column(values["names"]["ids"]).tolist() == [7, 8, 9]
    assert names == ["7", "8", "9"]


def test_the_same_plan_gives_the_same_page():
    assert to_html(PLAN) == to_html(PLAN)
    slower = replace(PLAN, seconds=9.0, nodes=7)
    quiet = ReportNotes(timings=False)
    assert to_html(PLAN) != to_html(slower)
    assert to_html(PLAN, [PLAN], quiet) == to_html(slower, [slower], quiet)
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", to_html(PLAN))


def test_the_page_asks_for_nothing_and_its_policy_names_its_own_script_and_styles():
    page = to_html(PLAN)
    elements = Elements(page)
    assert not [attrs for _, attrs in elements.elements if {"src", "href", "action", "srcset"} & attrs.keys()]
    assert not [
        name for _, attrs in elements.elements for name in attrs if name.startswith("on") or name == "style"
    ]
    policy = next(attrs["content"] for _, attrs in elements.elements if "http-equiv" in attrs)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (styles,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    for kind, text in (("script-src", script), ("style-src", styles)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.search(r"https?:|@import|url\(", page)


def test_hostile_texts_are_text_everywhere():
    problem = make_problem([0, 1], [2, 3], [64, 64], names=[HOSTILE, "b"], name=HOSTILE)
    plan = replace(make_plan(problem), parameters=(("found_by", HOSTILE),))
    page = to_html(plan, [replace(plan, strategy=HOSTILE)], ReportNotes(HOSTILE, HOSTILE, HOSTILE))
    page.encode()
    elements = Elements(page)
    assert [tag for tag, _ in elements.elements].count("script") == 2
    assert not [
        tag for tag, _ in elements.elements if tag in ("img", "iframe", "object", "embed", "link", "base")
    ]
    assert "window.hit" in "".join(elements.text["h1"])
    assert data_of(page)[2][0].startswith("</script><script>")


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_in_the_page_is_ascii_that_ends_nothing_and_reads_back(values):
    text = script_json(values)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == values


def test_it_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "report.html"
    write_report(PLAN, target)
    assert target.read_text("utf-8") == to_html(PLAN)
    with pytest.raises(InputError):
        write_report(PLAN, tmp_path / "nowhere" / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


# ---- in a browser

DRAWN = "() => document.getElementById('chart').dataset.drawn !== undefined"
PIXEL = """([x, y]) => {
    const canvas = document.getElementById('chart');
    const ratio = canvas.width / canvas.clientWidth;
    return [...canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3);
}"""
HEADROOM = 1.03
SLOW_READING = "Multiple readback operations using getImageData"
"""What Chromium says of the test itself, which looks at pixels one by one."""


@pytest.fixture
def opened(chromium, tmp_path):
    """Open a report from its file, with no network; at the end nothing may have gone wrong."""
    contexts, wrong = [], []

    def open_one(page, width=1440, height=1000, scheme="light"):
        path = tmp_path / "report.html"
        path.write_text(page, "utf-8")
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        tab = context.new_page()
        tab.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        tab.on("console", lambda message: SLOW_READING in message.text or wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on(
            "request", lambda asked: urlsplit(asked.url).scheme in ("file", "blob") or wrong.append(asked.url)
        )
        tab.goto(path.as_uri())
        tab.wait_for_function(DRAWN)
        return tab

    yield open_one
    for context in contexts:
        context.close()
    assert wrong == []


def place_of(tab, step, nbytes, plan):
    """Where `step` and `nbytes` are on the canvas of a page that shows all, as `draw.js` lays it out."""
    width, height = tab.evaluate(
        "() => ['clientWidth', 'clientHeight'].map((k) => document.getElementById('chart')[k])"
    )
    left, right, top, bottom = 82, width - 8, 8, height - 30 - 100 - 26
    top_bytes = plan.arena_bytes * HEADROOM
    return (
        left + (right - left) * step / plan.problem.steps,
        bottom - (bottom - top) * nbytes / top_bytes,
    )


def hover(tab, step, nbytes, plan):
    box = tab.locator("#chart").bounding_box()
    x, y = place_of(tab, step, nbytes, plan)
    tab.mouse.move(box["x"] + x, box["y"] + y)
    return tab.locator("#tooltip")


def rgb_of(colour):
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_buffer_is_a_rectangle_of_its_colour_at_its_place(opened, scheme):
    page = to_html(PLAN)
    values, column, _ = data_of(page)
    tab = opened(page, scheme=scheme)
    assert tab.locator("#chart").get_attribute("data-drawn") == "3"
    colouring = values["colourings"][0]
    for buffer in range(3):
        middle = (PROBLEM.start[buffer] + PROBLEM.end[buffer]) / 2 - 0.2
        x, y = place_of(tab, middle, PLAN.offsets[buffer] + 0.9 * PROBLEM.size[buffer], PLAN)
        pair = colouring["palette"][column(colouring["index"])[buffer]]
        assert tab.evaluate(PIXEL, [x, y]) == rgb_of(pair[scheme == "dark"])
    ground = {"light": "#ffffff", "dark": "#14171d"}[scheme]
    assert tab.evaluate(PIXEL, list(place_of(tab, 4.6, 150, PLAN))) == rgb_of(ground)


def around(tab, x, y):
    return [tab.evaluate(PIXEL, [x, y + off]) for off in (-1, 0, 1)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_strip_reaches_the_peak_that_ops_make(opened, scheme):
    tab, plan = opened(to_html(scratch_plan()), scheme=scheme), scratch_plan()
    top = tab.evaluate("() => document.getElementById('chart').clientHeight") - 30 - 100
    xs = [place_of(tab, step + 0.2, 0, plan)[0] for step in range(3)]

    def line_at(x, nbytes):
        y = top + 100 * (1 - nbytes / max(HELD))
        return rgb_of(strip_lines.HELD[scheme == "dark"]) in around(tab, x, y)

    assert [[line_at(x, nbytes) for nbytes in HELD] for x in xs] == np.eye(3, dtype=bool).tolist()
    box = tab.locator("#chart").bounding_box()
    tab.mouse.move(box["x"] + xs[1], box["y"] + top + 50)
    assert tab.locator("#tooltip").inner_text().splitlines()[1:3] == ["live 150 B", "with workspaces 350 B"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_line_more_is_drawn_in_its_colour_and_named(opened, scheme, monkeypatch):
    more = strip_lines.StripLine("made up", np.array([0, 2]), np.array([60, 120]), ("#123456", "#fedcba"))
    monkeypatch.setattr(strip_lines, "SOURCES", (*strip_lines.SOURCES, lambda *given: more))
    tab = opened(to_html(PLAN), scheme=scheme)
    bottom = tab.evaluate("() => document.getElementById('chart').clientHeight") - 30
    for step, nbytes in ((0.5, 60), (2.5, 120)):
        x, y = place_of(tab, step, 0, PLAN)[0], bottom - 100 * nbytes / PLAN.arena_bytes
        assert rgb_of(more.colours[scheme == "dark"]) in around(tab, x, y)
    box = tab.locator("#chart").bounding_box()
    tab.mouse.move(box["x"] + x, box["y"] + bottom - 20)
    assert "made up 120 B" in tab.locator("#tooltip").inner_text().splitlines()


def test_hover_click_search_zoom_and_colour(opened):
    tab = opened(to_html(PLAN))
    tooltip = hover(tab, 4.4, 60, PLAN)
    assert tooltip.inner_text().splitlines() == [
        "c",
        "120 B (120 B)",
        "offset 0 B (0 B)",
        "live [3, 5), 2 steps",
    ]
    box = tab.locator("#chart").bounding_box()
    tab.mouse.click(
        *(sum(pair) for pair in zip((box["x"], box["y"]), place_of(tab, 2, 145, PLAN), strict=True))
    )
    assert tab.locator("#details").inner_text().startswith("b\n50 B")
    assert tab.locator("tr.selected").inner_text().split()[0] == "b"
    tab.fill("#find", "A")
    assert tab.locator("#found").inner_text() == "1 of 3"
    tab.fill("#find", "")
    tab.select_option("#colouring", "lifetime")
    assert "≥ 3 steps" in tab.locator("#legend").inner_text()
    for _ in range(6):
        tab.click("#closer")
    tab.wait_for_function("() => Number(document.getElementById('chart').dataset.drawn) < 3")
    tab.click("#whole")
    tab.wait_for_function("() => document.getElementById('chart').dataset.drawn === '3'")


def test_scripts_in_names_do_not_run(opened):
    problem = make_problem([0, 0], [8, 8], [64, 64], names=[HOSTILE, HOSTILE + "2"], name=HOSTILE)
    plan = make_plan(problem, "naive")
    tab = opened(to_html(plan, [], ReportNotes(HOSTILE, HOSTILE)))
    shown = hover(tab, 6, 32, plan).inner_text()
    assert shown.startswith("</script><script>window.hit=1;alert(1)</script>")
    tab.fill("#find", HOSTILE[:40])
    assert tab.locator("#found").inner_text() == "2 of 2"
    assert tab.evaluate("() => window.hit") is None
    assert tab.locator("img").count() == 0


def test_ten_thousand_buffers_are_drawn_on_a_small_screen_and_nothing_overflows(opened):
    plan = make_plan(many(10_000), "greedy_by_size")
    tab = opened(to_html(plan), width=420, height=800)
    assert tab.locator("#chart").get_attribute("data-drawn") == "10000"
    assert tab.evaluate("() => document.documentElement.scrollWidth - window.innerWidth") <= 0
