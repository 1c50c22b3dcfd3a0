"""`memplan report`: what it writes, what it refuses, and that finished plans stay as they are."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from PIL import Image

from memplan_engine.cli.commands import report_command


def test_all_three_are_written_and_named(memplan, tmp_path):
    code, out, _ = memplan("report", "list.csv", "-o", "r.html", "--svg", "r.svg", "--png", "r.png")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["r.html", "r.png", "r.svg"]
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "<h1>list</h1>" in page
    assert "<dd>list.csv</dd>" in page
    ElementTree.parse(tmp_path / "r.svg")
    assert Image.open(tmp_path / "r.png").size == (1920, 1200)


def rows_of(page):
    return re.findall(r"<tr[^>]*><td>(\w+)</td>", page)


def test_the_table_has_the_strategies_asked_for(memplan, tmp_path):
    def compared(*arguments):
        assert memplan("report", "list.csv", "-o", "r.html", *arguments)[0] == 0
        return rows_of((tmp_path / "r.html").read_text("utf-8"))

    assert set(compared("--compare", "naive,linear_scan")) == {"auto", "naive", "linear_scan"}
    assert compared("--compare", "none") == []
    everything = compared()
    assert {"auto", "exact", "greedy_by_size", "naive", "partition"} <= set(everything)
    assert len(everything) == len(set(everything))


def test_sizes_for_papers(memplan, tmp_path):
    size = ("--width", "85mm", "--height", "2.5in", "--dpi", "300", "--theme", "dark", "--title", "Figure 1")
    assert memplan("report", "list.csv", "--png", "r.png", "--svg", "r.svg", *size)[0] == 0
    assert Image.open(tmp_path / "r.png").size == (1003, 750)
    svg = ElementTree.parse(tmp_path / "r.svg").getroot()
    assert (svg.get("width"), svg.get("height")) == ("321", "240")
    assert "Figure 1" in "".join(svg.itertext())


def test_without_timings_two_runs_give_the_same_page(memplan, tmp_path):
    pages = []
    for _ in range(2):
        arguments = ("-o", "r.html", "--no-timings", "--strategy", "greedy_by_size", "--compare", "naive")
        assert memplan("report", "list.csv", *arguments)[0] == 0
        pages.append((tmp_path / "r.html").read_bytes())
    assert pages[0] == pages[1]


def test_the_date_is_there_when_asked_for(memplan, tmp_path):
    assert memplan("report", "list.csv", "-o", "r.html", "--compare", "none", "--date")[0] == 0
    assert re.search(r"<dt>Date</dt><dd>\d{4}-\d\d-\d\d</dd>", (tmp_path / "r.html").read_text("utf-8"))


def test_a_finished_plan_stays_as_it_is_unless_a_strategy_is_asked_for(memplan, tmp_path):
    assert memplan("plan", "list.csv", "--strategy", "naive", "-o", "plan.json")[0] == 0
    assert memplan("report", "plan.json", "-o", "r.html", "--compare", "none")[0] == 0
    assert "planned by naive" in (tmp_path / "r.html").read_text("utf-8")
    assert memplan("report", "plan.json", "-o", "r.html", "--compare", "none", "--strategy", "auto")[0] == 0
    assert "planned by auto" in (tmp_path / "r.html").read_text("utf-8")


def test_a_plan_that_is_not_valid_is_shown_and_said_to_be(memplan, tmp_path):
    memplan("plan", "list.csv", "--strategy", "naive", "-o", "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["offsets"][1] -= 50
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    code, _, err = memplan("report", "plan.json", "-o", "r.html")
    assert code == 0, err
    assert "Not valid: " in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to write"),
        (("-o", "r.pdf"), "the suffix '.pdf'"),
        (("-o", "no/r.html"), "a folder that does not exist"),
        (("--png", "r.svg"), "the suffix '.svg'"),
        (("--svg", "r.svg", "--width", "wide"), "--width"),
        (("--svg", "r.svg", "--width", "3"), "width"),
        (("--png", "r.png", "--dpi", "100000"), "dpi"),
        (("--svg", "r.svg", "--colour-by", "taste"), "colouring"),
        (("-o", "r.html", "--compare", "naive,magic"), "magic"),
        (("-o", "r.html", "--seconds", "-1"), "--seconds"),
    ],
)
def test_what_is_refused_is_refused_in_one_line_before_anything_is_planned(
    memplan, tmp_path, monkeypatch, arguments, said
):
    monkeypatch.setattr(report_command, "make_plan", lambda *a, **k: pytest.fail("planned"))
    code, out, err = memplan("report", "list.csv", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["list.csv"]


def test_the_input_is_never_overwritten(memplan, tmp_path):
    (tmp_path / "list.html").write_bytes((tmp_path / "list.csv").read_bytes())
    code, _, err = memplan("report", "list.html", "-o", "list.html")
    assert code == 2
    assert "the input file as the output" in err
