"""The figures of a plan and the columns of its peak: each stands in one list, and is shown everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from memplan_engine import adopt, find_peak, make_plan, make_problem
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.files import load
from memplan_engine.reporters import figure_list
from memplan_engine.reporters.figure_list import FIGURES, PEAK_COLUMNS, Figure, PeakColumn, figure_facts
from memplan_engine.reporters.html.report_html import to_html
from memplan_engine.reporters.plan_tables import peak_summary, peak_table, plan_summary, plan_table
from tests import ROOT
from tests.support.apptest import open_app

#   steps     0   1   2   3   4     a at 0, b at 120, c at 0: 170 bytes at step 3, 120 of c and 50 of b.
PROBLEM = make_problem([0, 1, 3], [3, 4, 5], [100, 50, 120], names=["a", "b", "c"], name="three")
PLAN = adopt(PROBLEM, np.array([0, 120, 0]))


def printed(renderable):
    console = Console(width=160, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_the_figures_of_a_plan_by_hand():
    figures = figures_of(adopt(PROBLEM, np.array([0, 180, 0])))
    assert (figures.arena, figures.demand, figures.loss, figures.bound) == (230, 170, 60, 170)
    assert (figures.naive, figures.optimal) == (270, False)
    assert (figures.gap, figures.saved) == (pytest.approx(60 / 170), pytest.approx(40 / 270))
    # At step 3 c lies at [0, 120) and b at [180, 230).
    assert (figures.peak_step, figures.peak_bytes, figures.holes_at_peak, figures.peak_op) == (3, 170, 60, "")
    assert (figures.workspace, figures.total, figures.constants, figures.buffers) == (0, 230, 0, 3)


def test_the_first_op_of_the_peak_has_its_name():
    graph = load(ROOT / "example_graphs" / "gpt2.json")
    assert figures_of(make_plan(graph, "greedy_by_size")).peak_op == "mul_1"


def test_a_plan_without_buffers_has_figures():
    figures = figures_of(make_plan(make_problem([], [], []), "greedy_by_size"))
    assert (figures.arena, figures.gap, figures.saved, figures.peak_bytes) == (0, 0.0, 0.0, 0)


def test_a_new_figure_appears_in_table_json_report_notebook_and_page(monkeypatch):
    new = Figure(
        label="twice the arena",
        facts=lambda f: {"twice_the_arena_bytes": 2 * f.arena},
        text=lambda f: f"{2 * f.arena:,} of twice",
        help="What two of them take.",
    )
    monkeypatch.setattr(figure_list, "FIGURES", (*FIGURES, new))
    assert plan_summary(PLAN)["twice_the_arena_bytes"] == 340
    for text in (printed(plan_table(PLAN)), PLAN._repr_html_(), PLAN._repr_mimebundle_()["text/plain"]):
        assert "twice the arena" in text
        assert "340 of twice" in text
    assert "<dt>Twice the arena</dt><dd>340 of twice</dd>" in to_html(PLAN)
    chips = {each.value: each.proto.help for each in open_app(doc="example:teaching_gaps").markdown}
    (told,) = [why for chip, why in chips.items() if chip.startswith(":gray-badge[Twice the arena")]
    assert told == "14 of twice\\. What two of them take\\."


def test_a_figure_that_says_nothing_is_not_shown(monkeypatch):
    silent = Figure(label="silence", facts=lambda _: {"silence": 0}, text=lambda _: "")
    monkeypatch.setattr(figure_list, "FIGURES", (*FIGURES, silent))
    assert "ilence" not in printed(plan_table(PLAN)) + PLAN._repr_html_() + to_html(PLAN)
    assert plan_summary(PLAN)["silence"] == 0


def test_no_two_figures_have_one_name():
    keys = list(figure_facts(figures_of(PLAN)))
    assert len(keys) == sum(len(each.facts(figures_of(PLAN))) for each in FIGURES)
    assert len({each.label for each in FIGURES}) == len(FIGURES)


def test_a_new_column_of_the_peak_appears_in_table_json_report_and_page(monkeypatch):
    new = PeakColumn(heading="letters", key="letters", value=lambda part, _: len(part.name), text=str)
    monkeypatch.setattr(figure_list, "PEAK_COLUMNS", (*PEAK_COLUMNS, new))
    peak = find_peak(PROBLEM)
    assert [each["letters"] for each in peak_summary(peak, PROBLEM)["contributors"]] == [1, 1]
    assert "letters" in printed(peak_table(peak, "three")).splitlines()[2]
    assert '<th scope="col">letters</th>' in to_html(PLAN)
    table = open_app(doc="example:teaching_gaps").dataframe[0].value
    assert list(table["letters"]) == [str(len(name)) for name in table["buffer"]]


def test_columns_that_say_nothing_are_left_out_of_the_report_and_the_picture_stands_behind_the_share():
    page = to_html(PLAN)
    heads = '<th scope="col">buffer</th><th scope="col" class="number">size</th>'
    assert heads + '<th scope="col" class="number">share</th><th scope="col"></th></tr>' in page
