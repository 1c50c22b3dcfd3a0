"""Recomputation on the Replay page: what is kept is chosen, held against the cheapest choice and a proof."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.charts import keep_picture
from memplan_dashboard.session import progress
from memplan_dashboard.widgets.kept_layers import kept_layers

from memplan_engine import find_peak, load, to_problem
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.graph import Phase
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from memplan_engine.rewrites.recompute.recomputed import recompute
from memplan_engine.rewrites.recompute.recomputed_graph import recomputed_graph
from memplan_engine.strategies.base import SolveLimits
from tests import ROOT
from tests.support.apptest import address, check, chips_of, open_app, said, upload, widget

MIB = 1 << 20
GRAPH = load(ROOT / "example_graphs" / "teaching_recompute.json")
LAYERS = kept_layers(GRAPH)
CHOICES = [gone for count in range(6) for gone in combinations(LAYERS.choices, count)]


def keep_page(**parameters):
    return open_app("replay", **{"doc": "example:teaching_recompute", "mode": "keep", **parameters})


def test_what_the_lesson_says_is_so():
    figures = {
        gone: (LAYERS.step(gone).peak // MIB, round(1e3 * LAYERS.step(gone).extra)) for gone in CHOICES
    }
    assert LAYERS.choices == ("f1", "f2", "f3", "f4", "f5")
    assert round(1e3 * LAYERS.total) == 60
    assert figures[()] == (31, 0)
    assert figures["f1", "f2"] == (18, 10)
    assert figures[LAYERS.choices][0] == 30
    within = {gone: extra for gone, (peak, extra) in figures.items() if peak <= 20}
    assert min(within, key=within.__getitem__) == ("f2", "f4")
    assert sorted(within.values())[:2] == [6, 8]
    found = recompute(GRAPH, LAYERS.times(), 20 * MIB, SolveLimits(1.0))
    assert (found.extra_seconds, found.bound_seconds) == pytest.approx((6e-3, 6e-3), abs=1e-8)
    price = float(found.proof.price) * MIB * 1e-6
    assert price == pytest.approx(2 / 3, rel=1e-4)
    assert found.proof.op == "b6"
    # f1, f5, f6 and the gradient are paid for, 17 MiB; f2, f3 and f4 are made again, 8 ms.
    assert 1e3 * found.bound_seconds + 20 * price == pytest.approx(17 * price + 8, rel=1e-4)


@pytest.mark.parametrize("gone", CHOICES[::5], ids=",".join)
def test_each_choice_is_a_schedule_that_the_engine_takes(gone):
    rewritten = recomputed_graph(GRAPH, LAYERS.sequence(gone))
    assert check_recompute(GRAPH, rewritten) == []
    step = LAYERS.step(gone)
    assert step.peak == find_peak(to_problem(rewritten)).nbytes
    assert len(step.names) == len(step.live) == len(rewritten.ops)
    assert sum(name.endswith("′") for name in step.names) == len(rewritten.ops) - len(GRAPH.ops)


def test_choosing_until_it_is_proved_that_nothing_is_cheaper():
    app = keep_page(lesson="8")
    assert chips_of(app) == [
        "peak 31 MiB of 20 MiB", "0 ms run again, +0.0 %", "all ops once 60 ms", "at least 6 ms: proved",
    ]  # fmt: skip
    assert said(app.info) == ["31 MiB are 11 MiB too many: let go of more, or of something else."]
    pills = app.get("button_group")[-1]
    assert pills.label == "Kept for the backward pass"
    pills.set_value(["f3", "f4", "f5"])
    check(app.run())
    assert address(app)["gone"] == "f1,f2"
    assert chips_of(app)[:2] == ["peak 18 MiB of 20 MiB", "10 ms run again, +16.7 %"]
    assert "It fits, for 10 ms. Of every schedule no more is proved than 6 ms" in said(app.info)[0]
    assert 8 not in progress.done()
    assert not any("cut" in text for text in said(app.markdown))
    app.button(key="keep_cheapest").click()
    check(app.run())
    assert address(app)["gone"] == "f2,f4"
    assert "6 ms run again: no schedule within 20 MiB runs again for less, proved." in said(app.success)
    proof = next(text for text in said(app.markdown) if text.startswith("Whatever the schedule"))
    for told in ("when b6 runs first", "cost 0.667 ms", "comes to 19.3 ms", "13.3 ms at most", "rest, 6 ms"):
        assert told in proof
    assert app.dataframe[0].value["kept, its bytes cost"].tolist()[:2] == ["5.33 ms", "5.33 ms"]
    assert 8 in progress.done()
    assert any(text.startswith("The results of f1, f3 and f5") for text in said(app.success))


def test_another_capacity_has_another_answer():
    app = keep_page(within="23", gone="f2")
    assert "4 ms run again: no schedule within 23 MiB runs again for less, proved." in said(app.success)
    widget(app.slider, "Capacity, MiB").set_value(18)
    check(app.run())
    assert address(app)["within"] == "18"
    assert chips_of(app)[0] == "peak 23 MiB of 18 MiB"
    assert chips_of(app)[-1] == "at least 7.33 ms: proved"
    # The bound is not reached there, so that nothing is called the cheapest.
    app.button(key="keep_cheapest").click()
    check(app.run())
    assert address(app)["gone"] == "f1,f2"
    assert said(app.info)[0].startswith(
        "It fits, for 10 ms. Of every schedule no more is proved than 7.33 ms"
    )
    widget(app.slider, "Capacity, MiB").set_value(9)
    check(app.run())
    assert said(app.success) == [
        "No schedule keeps to 9 MiB, whatever is kept and however often ops run: proved."
    ]
    assert chips_of(app)[-1] == "no schedule has so few bytes: proved"


def test_where_nothing_has_to_be_made_again_that_is_no_answer_to_the_lesson():
    app = keep_page(within="31", lesson="8")
    assert said(app.success) == ["0 ms run again: no schedule within 31 MiB runs again for less, proved."]
    assert 8 not in progress.done()


def test_what_the_address_says_is_kept_as_far_as_it_makes_sense():
    app = keep_page(gone="f2,f6,<b>")
    assert said(app.warning) == ["gone: found 'f6', expected some of f1, f2, f3, f4, f5."]
    assert chips_of(app)[0] == "peak 23 MiB of 20 MiB"
    assert said(keep_page(within="99").warning) == ["within: found '99', expected 1 to 31."]
    assert said(keep_page(within="x").warning)
    # Another graph has nothing of it.
    app.selectbox(key="replay_doc").set_value("example:teaching_order")
    check(app.run())
    assert not {"gone", "within"} & set(address(app))


def test_it_is_offered_for_small_training_steps_alone():
    assert "mode: found 'keep', expected replay" in said(keep_page(doc="example:teaching_order").warning)[0]
    assert kept_layers(load(ROOT / "example_graphs" / "bert_training_default.json")) is None
    forward = tuple(replace(op, phase=Phase.FORWARD) for op in GRAPH.ops)
    assert kept_layers(replace(GRAPH, ops=forward)) is None
    # Of any other step the times are those of a device.
    app = upload(open_app("import"), "own.json", dumps(replace(GRAPH, name="own")))
    app = keep_page(doc=address(app)["doc"])
    assert "all ops once 60 ms" not in chips_of(app)
    assert chips_of(app)[0] == "peak 31 MiB of 20 MiB"


@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_has_each_op_once_and_its_arrows_end_at_boxes(dark):
    drawn = LAYERS.drawn()
    root = ElementTree.fromstring(keep_picture.svg(drawn, ("f1", "f3", "f5"), ("f2", "f4"), dark))
    svg = "{http://www.w3.org/2000/svg}"
    texts = [each.text for each in root.iter(f"{svg}text")]
    assert [texts[place : place + 3] for place in (0, 3)] == [
        ["f1", "8 MiB", "6 ms"],
        ["f2", "8 MiB", "4 ms"],
    ]
    assert len(texts) == 3 * len(GRAPH.ops)
    boxes = list(root.iter(f"{svg}rect"))
    dashed = [place for place, each in enumerate(boxes) if each.get("stroke-dasharray")]
    filled = [place for place, each in enumerate(boxes) if each.get("fill-opacity")]
    assert (dashed, filled) == ([1, 3], [0, 2, 4])
    # b1 stands below f1: the backward pass goes back.
    assert boxes[-1].get("x") == boxes[0].get("x")
    told = keep_picture.sentence(drawn, ("f1",), ("f2", "f4"))
    assert told.endswith("kept: f1; made again: f2, f4")
