"""Bands above a chart: phases of a training step, and the branches of ops that run graphs of their own."""

from __future__ import annotations

import json

import pytest

from memplan_engine import FigureStyle, make_plan
from memplan_engine.graph import Op, Phase, path_text
from memplan_engine.lifetimes import to_problem
from memplan_engine.plotting.bands import MOST_BANDS, Band, bands_of
from memplan_engine.plotting.scene import make_scene
from memplan_engine.plotting.shapes import Box, Line, Text
from memplan_engine.reporters.html.report_data import chart_json
from tests.support.graphs import make_graph

LOOP = ("loop", "body")
PICK = "loop.body.pick"
OPS = (
    Op("begin", "begin", ("x",), ("a",)),
    Op("loop.body.grow", "grow", ("a",), ("b",), within=(LOOP,)),
    Op("loop.body.pick.yes.mul", "mul", ("b",), ("c",), within=(LOOP, (PICK, "yes"))),
    Op("loop.body.pick.no.add", "add", ("b",), ("d",), within=(LOOP, (PICK, "no"))),
    Op(PICK, "pick", ("c", "d"), ("e",), within=(LOOP,)),
    Op("loop", "loop", ("a", "e"), ("f",)),
    Op("end", "end", ("f",), ("y",)),
)
"""A step each. The loop's body has the steps 1 to 4, the branches of the op in it 2 and 3."""


def problem_of(*ops, **more):
    sizes = dict.fromkeys(("x", *(name for op in ops for name in op.outputs)), 64)
    return to_problem(make_graph(ops, sizes, inputs=("x",), outputs=(ops[-1].outputs[0],), **more))


NESTED = problem_of(*OPS)


def test_branches_have_the_steps_of_their_ops_and_those_inside_others_a_row_of_their_own():
    found = [(band.row, band.label, band.start, band.end) for band in bands_of(NESTED)]
    assert found == [(0, "loop · body", 1, 5), (1, "pick · yes", 2, 3), (1, "pick · no", 3, 4)]


def test_a_path_names_each_op_without_what_it_is_inside():
    assert path_text(OPS[2].within) == "loop · body › pick · yes"
    assert path_text((("If_3", "then"), ("Loop_4", "body"))) == "If_3 · then › Loop_4 · body"
    assert path_text(()) == ""


def test_phases_stand_above_branches():
    ops = (
        Op("begin", "begin", ("x",), ("a",), phase=Phase.FORWARD),
        Op("cond.true.mul", "mul", ("a",), ("b",), phase=Phase.FORWARD, within=(("cond", "true"),)),
        Op("cond", "cond", ("b",), ("c",), phase=Phase.FORWARD),
        Op("end", "end", ("c",), ("d",), phase=Phase.BACKWARD),
    )
    found = [(band.row, band.label, band.start, band.end) for band in bands_of(problem_of(*ops))]
    assert found == [(0, "forward", 0, 3), (0, "backward", 3, 4), (1, "cond · true", 1, 2)]


def calls(count):
    """As many ops in a row that run one op each."""
    for number in range(count):
        before = f"out{number - 1}" if number else "x"
        yield Op(f"in{number}", "in", (before,), (f"in{number}",), within=((f"out{number}", "body"),))
        yield Op(f"out{number}", "out", (f"in{number}",), (f"out{number}",))


def test_a_row_with_too_many_bands_is_left_out():
    assert len(bands_of(problem_of(*calls(MOST_BANDS)))) == MOST_BANDS
    assert bands_of(problem_of(*calls(MOST_BANDS + 1))) == ()


# ---- figures


def words_of(scene):
    return {shape.words: shape for shape in scene.before if isinstance(shape, Text)}


def test_a_figure_has_bars_with_names_and_lines_at_their_ends():
    scene = make_scene(make_plan(NESTED, "naive"), FigureStyle())
    plot, words = scene.plot, words_of(scene)
    step = plot.width / 7
    for label, start, row in (("loop · body", 1, 0), ("pick · yes", 2, 1), ("pick · no", 3, 1)):
        assert words[label].x == pytest.approx(plot.left + start * step + 2)
        assert words[label].y == pytest.approx(plot.top - 36 + 18 * row + 10)
    upright = [
        shape
        for shape in scene.before
        if isinstance(shape, Line) and shape.x0 == shape.x1 and shape.y1 == plot.bottom and not shape.dash
    ]
    assert [(shape.x0 - plot.left) / step for shape in upright] == pytest.approx([1, 5, 2, 3, 4])
    # Lines begin at the bar of the outermost band that ends there.
    assert [plot.top - shape.y0 for shape in upright] == pytest.approx([36, 36, 18, 18, 18])
    strip = [s for s in scene.before if isinstance(s, Line) and s.x0 == s.x1 and s.y0 > plot.bottom]
    assert {shape.x0 for shape in upright} <= {shape.x0 for shape in strip}


def test_lines_of_narrow_bands_are_left_out():
    """Of 200 steps each has some 4 of 900 pixels."""
    scene = make_scene(make_plan(problem_of(*calls(100)), "naive"), FigureStyle())
    assert len([shape for shape in scene.before if isinstance(shape, Box) and shape.frame.height == 3]) == 100
    lines = [shape for shape in scene.before if isinstance(shape, Line) and not shape.dash]
    assert not [line for line in lines if line.x0 == line.x1 and line.y1 == scene.plot.bottom]


@pytest.mark.parametrize(
    ("width", "expected"), [(960, {"pick · yes"}), (420, {"yes"}), (200, set())], ids=str
)
def test_names_get_shorter_and_go_where_bands_are_narrow(width, expected):
    words = words_of(make_scene(make_plan(NESTED, "naive"), FigureStyle(width=width)))
    assert words.keys() & {"pick · yes", "yes"} == expected


def test_what_has_no_bands_or_no_room_for_them_is_drawn_as_before():
    plain = problem_of(OPS[0])
    assert make_scene(make_plan(plain, "naive"), FigureStyle()).plot.top == 12 + 44
    low = make_scene(make_plan(NESTED, "naive"), FigureStyle(height=240))
    assert low.plot.top == 12 + 24
    assert "loop · body" not in words_of(low)


def test_a_report_has_them_for_its_chart():
    bands = json.loads(chart_json(make_plan(NESTED, "naive")))["bands"]
    assert [Band(**{**each, "colours": tuple(each["colours"])}) for each in bands] == [*bands_of(NESTED)]


def test_plotly_draws_them_above_the_rectangles():
    pytest.importorskip("plotly")
    figure = make_plan(NESTED, "naive").figure()
    names = {note.text: note.x for note in figure.layout.annotations}
    assert (names["loop · body"], names["pick · yes"], names["pick · no"]) == (1, 2, 3)
    bars = [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.ysizemode == "pixel"]
    assert bars == [(1, 5), (2, 3), (3, 4)]
    assert figure.layout.margin.t == 70 + 36
