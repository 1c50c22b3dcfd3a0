"""A plan in a notebook: what it shows by itself, and its Plotly figure."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from rich.console import Console

from memplan_engine import MissingDependencyError, adopt, make_plan, make_problem
from memplan_engine.plotting import plotly_figure

HOSTILE = "</text></svg><script>alert(1)</script><!-- ]]> \"'&amp;"

#   steps    0   1   2   3   4
#   a (100)  ├───────────┤         b lives with both, so it lies above c, at 120.
#   b  (50)      ├───────────┤
#   c (120)              ├───────┤
PROBLEM = make_problem([0, 1, 3], [3, 4, 5], [100, 50, 120], names=["a", "b", "c"], name="three")
PLAN = adopt(PROBLEM, np.array([0, 120, 0]))


def test_a_plan_shows_itself_in_notebooks():
    bundle = PLAN._repr_mimebundle_()
    assert bundle["text/html"] == PLAN._repr_html_()
    assert "<svg" in bundle["text/html"]
    assert "Plan(" not in bundle["text/plain"]
    assert "arena                  170 B" in bundle["text/plain"]
    console = Console(width=100)
    with console.capture() as shown:
        console.print(PLAN)
    assert "optimal for the buffers listed: the arena equals the live bytes at step 3" in shown.get()


def test_a_notebook_shows_hostile_names_as_text():
    problem = make_problem([0], [9], [64], names=[HOSTILE], name=HOSTILE)
    assert "<script" not in make_plan(problem)._repr_html_()


def test_figure_has_a_bar_for_each_buffer():
    worse = adopt(PROBLEM, np.array([0, 150, 0]))
    chart = worse.figure(colour_by="size")
    bars = {
        said[0]: (x, base, width, y)
        for trace in chart.data
        if trace.type == "bar"
        for said, x, base, width, y in zip(
            trace.customdata, trace.x, trace.base, trace.width, trace.y, strict=True
        )
    }
    assert bars == {"a": (0, 0, 3, 100), "b": (1, 150, 3, 50), "c": (3, 0, 2, 120)}
    lines = [shape.y0 for shape in chart.layout.shapes if shape.y0 == shape.y1]
    assert sorted(lines) == [170, 200]
    live = next(trace for trace in chart.data if trace.name == "live")
    assert list(zip(live.x, live.y, strict=True)) == [(0, 100), (1, 150), (3, 170), (4, 120), (5, 120)]


def test_figure_of_too_many_is_a_picture_and_names_are_no_markup(monkeypatch):
    problem = make_problem([0], [9], [64], names=["<b>x</b>"], name="<i>p")
    chart = make_plan(problem).figure(theme="dark")
    assert chart.layout.title.text.startswith("&lt;i&gt;p")
    assert (
        next(trace for trace in chart.data if trace.type == "bar").customdata[0][0] == "&lt;b&gt;x&lt;/b&gt;"
    )
    monkeypatch.setattr(plotly_figure, "MOST_BARS", 0)
    chart = make_plan(problem).figure()
    assert not [trace for trace in chart.data if trace.type == "bar"]
    assert chart.layout.images[0].sizex == 9


def test_without_plotly_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.subplots", None)
    with pytest.raises(MissingDependencyError, match=r"memplan\[figures\]"):
        PLAN.figure()
