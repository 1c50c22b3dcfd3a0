"""Every strip has a line for what ops hold beside the arena, so that it reaches the peak that is shown."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from memplan_dashboard.plan_view.packing import pack
from memplan_dashboard.session import documents
from memplan_dashboard.session.plan_facts import make_facts
from memplan_dashboard.widgets.plan_panels import make_panel
from PIL import Image

from memplan_engine import (
    FigureStyle,
    capture,
    compare_run,
    find_peak,
    load_program,
    make_plan,
    make_problem,
    to_problem,
)
from memplan_engine.plotting import scene, strip_lines
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.plotting.figure_style import THEMES, rgb
from memplan_engine.plotting.png_figure import to_png
from memplan_engine.plotting.svg_figure import to_svg
from memplan_engine.profile import Held, make_profile
from memplan_engine.reporters.html import report_data
from memplan_engine.reporters.html.report_html import to_html
from memplan_engine.reporters.plan_tables import plan_summary
from tests.dashboard.plan_view.test_plan_view import unpack
from tests.reporters.test_report import data_of
from tests.support.scratch_graphs import HELD, scratch_plan
from tests.test_scope import BUILDS

PLAN = scratch_plan()
PLAIN = make_plan(make_problem([0, 1], [2, 3], [10, 20]))
POLYLINE = "{http://www.w3.org/2000/svg}polyline"


def by_step(held: Held, steps: int) -> list[int]:
    return np.repeat(held.nbytes, np.diff([*held.start.tolist(), steps])).tolist()


def panel_of(plan):
    document = documents.Document("file:x", "x", plan.problem, documents.Options(), plan.problem)
    return make_panel(make_facts(document, plan), COLOURINGS["size"](plan.problem))


def test_what_is_held_is_storages_and_scratch_step_by_step():
    profile = make_profile(PLAN.problem, PLAN.offsets)
    assert by_step(profile.held, 3) == HELD
    assert (profile.peak_step, profile.peak_bytes) == (1, 350)
    assert (PLAN.arena_bytes, plan_summary(PLAN)["peak_bytes"]) == (150, 350)
    assert by_step(make_profile(PLAIN.problem, PLAIN.offsets).held, 3) == [10, 30, 20]


def test_thinned_it_keeps_its_peak():
    held = Held(np.arange(100), np.arange(100) * 7 % 101)
    assert held.thinned(100) is held
    thin = held.thinned(9)
    assert len(thin.start) <= 9
    assert thin.peak_bytes == held.peak_bytes
    assert all(each <= top for each, top in zip(held.nbytes, np.repeat(thin.nbytes, 12), strict=False))


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_the_line_is_what_a_real_run_holds_during_each_op(build):
    model, args = build()
    run = compare_run(load_program(model, args), args)
    problem = to_problem(capture(model, args), alignment=1)
    held = make_profile(problem, make_plan(problem, "greedy_by_size").offsets).held
    assert by_step(held, problem.steps)[: len(run.dispatch)] == run.dispatch.tolist()
    assert held.peak_bytes == run.dispatch_peak


def test_the_chart_has_a_line_that_reaches_the_peak():
    (line,) = panel_of(PLAN).lines
    assert (line.label, line.colours, line.exact) == ("with workspaces", strip_lines.HELD, True)
    assert by_step(Held(line.start, line.nbytes), 3) == HELD
    assert int(line.nbytes.max()) == find_peak(PLAN.problem).nbytes
    header, column = unpack(pack([panel_of(PLAN)], {}))
    (sent,) = header["panels"][0]["lines"]
    assert column(sent["bytes"]).tolist() == HELD
    assert panel_of(PLAIN).lines == ()


def test_the_report_has_the_line_too():
    values, column, _ = data_of(to_html(PLAN))
    (line,) = values["lines"]
    assert (line["label"], line["exact"]) == ("with workspaces", True)
    assert column(line["bytes"]).tolist() == HELD
    assert values["deep"] == 350
    assert json.loads(report_data.chart_json(PLAIN))["lines"] == []


@pytest.mark.parametrize("theme", THEMES)
def test_figures_have_the_line_at_the_peak(theme):
    style = FigureStyle(theme=theme)
    svg = ElementTree.fromstring(to_svg(PLAN, style))
    (line,) = svg.iter(POLYLINE)
    assert line.get("stroke") == style.of_theme(strip_lines.HELD)
    corners = [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
    assert len(corners) == 6
    # The peak is the top of the strip; what is held elsewhere stands below it in proportion.
    heights = [y for _, y in corners[::2]]
    ground = heights[1] + (heights[0] - heights[1]) * 350 / 250
    assert [round((ground - y) * 350 / (ground - heights[1])) for y in heights] == HELD
    assert "with workspaces" in {text.text for text in svg.iter(POLYLINE.replace("polyline", "text"))}
    pixels = np.asarray(Image.open(io.BytesIO(to_png(PLAN, style))).convert("RGB"))
    top = np.argwhere((pixels == rgb(style.of_theme(strip_lines.HELD))).all(-1))
    assert len(top) > 1000
    assert not list(ElementTree.fromstring(to_svg(PLAIN, style)).iter(POLYLINE))


def test_the_line_of_many_steps_is_thinned(monkeypatch):
    monkeypatch.setattr(scene, "MOST_POINTS", 2)
    (line,) = ElementTree.fromstring(to_svg(PLAN)).iter(POLYLINE)
    assert len(line.get("points").split()) == 4


def test_the_notebook_figure_has_the_curve():
    pytest.importorskip("plotly")
    chart = PLAN.figure()
    (curve,) = (trace for trace in chart.data if trace.name == "with workspaces")
    assert max(curve.y) == 350
    assert chart.layout.yaxis2.range[1] == 350
    assert not [trace for trace in PLAIN.figure().data if trace.name.startswith("with ")]


MORE = strip_lines.StripLine("made up", np.array([0, 1]), np.array([60, 120]), ("#123456", "#fedcba"), (6, 2))


@pytest.mark.parametrize("theme", THEMES)
def test_a_line_more_is_seen_by_every_renderer(theme, monkeypatch):
    """One entry of SOURCES is all that a curve takes: its label, colours and dash go with it."""
    monkeypatch.setattr(strip_lines, "SOURCES", (*strip_lines.SOURCES, lambda *given: MORE))
    style = FigureStyle(theme=theme)
    colour = MORE.colours[theme == "dark"]
    svg = ElementTree.fromstring(to_svg(PLAIN, style))
    (line,) = svg.iter(POLYLINE)
    assert (line.get("stroke"), line.get("stroke-dasharray")) == (colour, "6 2")
    assert "made up" in {text.text for text in svg.iter(POLYLINE.replace("polyline", "text"))}
    pixels = np.asarray(Image.open(io.BytesIO(to_png(PLAIN, style))).convert("RGB"))
    # Dashes across the strip, in all of its width: 6 of 8 pixels.
    dashes = (pixels == rgb(colour)).all(-1).any(0)
    assert 0.7 < dashes[dashes.argmax() : -dashes[::-1].argmax()].mean() < 0.8
    values, column, _ = data_of(to_html(PLAIN))
    ((sent,), (shown,)) = values["lines"], panel_of(PLAIN).lines
    assert (sent["label"], sent["colors"], sent["dash"]) == ("made up", list(MORE.colours), [6, 2])
    assert column(sent["bytes"]).tolist() == [60, 120]
    assert shown is MORE
    pytest.importorskip("plotly")
    (curve,) = (trace for trace in PLAIN.figure(theme=theme).data if trace.name == "made up")
    assert (curve.line.color, curve.line.dash) == (colour, "6px,2px")
    assert list(curve.y) == [60, 120, 120]
