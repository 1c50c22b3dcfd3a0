"""What the dashboard knows of graphs: streams, layout, values, shared objects, phases."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.charts import layout_bar, phase_areas, size_curve
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.plan_facts import make_facts
from memplan_dashboard.views.inspect.training_tab import areas_of
from memplan_dashboard.widgets import plan_panels

from memplan_engine import load, make_plan, to_problem, write_json
from memplan_engine.analysis.layout import make_layout
from memplan_engine.analysis.training_phases import saved_activations
from memplan_engine.plotting import colouring as colours
from memplan_engine.plotting.axis_ticks import byte_values, share_ticks
from memplan_engine.symbolic import sweep
from tests.analysis.test_layout import NET
from tests.support.apptest import address, check, figure, open_app, widget
from tests.test_schedule import DIAMOND

TRAINING = "example:bert_training_default"


@pytest.fixture(autouse=True)
def _own_files(tmp_path, monkeypatch):
    write_json(DIAMOND, tmp_path / "diamond.json")
    write_json(NET, tmp_path / "net.json")
    (tmp_path / "list.csv").write_text("id,lower,upper,size\na,0,4,10\nb,1,3,20\n")
    files = [str(tmp_path / name) for name in ("diamond.json", "net.json", "list.csv")]
    monkeypatch.setattr("sys.argv", ["app.py", *files])


def captions(app):
    return " | ".join(each.value.replace("\\", "") for each in app.caption)


def training():
    document = state.load_document(TRAINING, documents.Options())
    return make_facts(document, make_plan(document.problem))


# Options.


def test_streams_are_planned_and_kept_in_the_address():
    app = open_app(alignment="1")
    assert (figure(app, "Arena"), widget(app.number_input, "Streams").value) == ("160 B", None)
    widget(app.number_input, "Streams").set_value(3)
    check(app.run())
    assert (figure(app, "Arena"), address(app)["streams"]) == ("220 B", "3")
    widget(app.number_input, "Streams").set_value(None)
    check(app.run())
    assert (figure(app, "Arena"), "streams" in address(app)) == ("160 B", False)


@pytest.mark.parametrize(
    ("label", "parameter", "value", "arena"),
    [
        ("Round sizes up", "round", "1", "256 B"),
        ("Plan graph inputs", "inputs", "1", "160 B"),
        ("Keep unused values alive", "unread", "held", "160 B"),
        ("Best order of the ops", "reorder", "1", "150 B"),
    ],
)
def test_each_option_is_a_switch_and_a_parameter(label, parameter, value, arena):
    app = open_app(alignment="1" if parameter != "round" else "64")
    widget(app.checkbox, label).set_value(True)
    check(app.run())
    assert (address(app)[parameter], figure(app, "Arena")) == (value, arena)
    again = open_app(**address(app))
    assert widget(again.checkbox, label).value
    assert figure(again, "Arena") == arena
    widget(again.checkbox, label).set_value(False)
    check(again.run())
    assert parameter not in address(again)


def test_early_updates_are_a_switch_of_training_steps_alone():
    label = "Optimizer in the backward pass"
    assert label not in [each.label for each in open_app().checkbox]
    app = open_app(doc="example:gpt2_training_step", strategy="greedy_by_size")
    before = figure(app, "Arena")
    widget(app.checkbox, label).set_value(True)
    check(app.run())
    assert (before, figure(app, "Arena")) == ("563.98 MiB", "551.01 MiB")
    assert address(app)["early_updates"] == "1"


def test_options_come_along_to_the_compare_page():
    app = open_app("compare", streams="3", alignment="1")
    assert widget(app.number_input, "Streams").value == 3
    assert any("220 B" in each.value for each in app.markdown)


def test_buffers_without_a_graph_have_no_options():
    app = open_app(doc="file:list.csv")
    assert [each.label for each in app.number_input] == []
    assert [tab.label for tab in app.tabs] == [
        "Live buffers", "All buffers", "Layout", "What if",
    ]  # fmt: skip


# The layout.


def test_the_layout_is_told_drawn_and_listed():
    app = open_app(tab="Layout", doc="file:net.json")
    assert "741 B total: weights and state 256 B · arena 128 B · unique workspaces 57 B" in captions(app)
    rows = app.dataframe[0].value
    assert rows["region"].value_counts().to_dict() == {
        "weights and state": 2, "arena": 4, "unique workspaces": 2, "shared workspace": 3,
    }  # fmt: skip
    entry = rows[(rows.region == "unique workspaces") & (rows.entry == "topk")].iloc[0]
    assert (entry.offset, entry.address, entry.bytes) == (7, 391, 50)


def test_the_bar_has_a_part_for_each_region_and_for_what_lies_side_by_side():
    parts = layout_bar.data(make_layout(make_plan(NET)))
    assert [(p.label, p.start, p.nbytes) for p in parts if p.whole] == [
        ("weights and state", 0, 256), ("arena", 256, 128), ("unique workspaces", 384, 57),
        ("shared workspace", 441, 300),
    ]  # fmt: skip
    assert [(p.label, p.start) for p in parts if not p.whole] == [
        ("w1", 0), ("w2", 128), ("conv1", 384), ("topk", 391),
    ]  # fmt: skip
    chart = layout_bar.figure(parts)
    assert [bar.name for bar in chart.data] == [p.label for p in parts if p.whole]
    assert list(chart.layout.xaxis.range) == [0, 741]


# Values and shared objects.


def test_values_are_listed_with_reasons():
    app = open_app(tab="Values", doc="file:net.json")
    assert "3 of 7 values can be planned, 192 B of storages." in captions(app)
    reasons = app.dataframe[0].value.set_index("reason")["values"].to_dict()
    assert reasons == {
        "its op is assumed to have an out variant": 3,
        "it belongs to the caller": 1,
        "it is a constant, stored separately": 2,
        "the graph returns it": 1,
    }
    widget(app.selectbox, "Show values").set_value("the graph returns it")
    check(app.run())
    assert app.dataframe[1].value["value"].tolist() == ["d"]


def test_shared_objects_have_a_table_of_their_own():
    names = [tab.label for tab in open_app(doc="example:mobilenet_v1_tflite").tabs]
    assert "Shared objects" not in names
    app = open_app(
        tab="Shared objects", doc="example:mobilenet_v1_tflite", strategy="shared_objects_by_size_improved"
    )
    assert "4.59 MiB together; shared objects need at least 4.59 MiB" in captions(app)
    assert "which they meet" in captions(app)
    rows = app.dataframe[0].value
    assert rows["bytes"].sum() == 4_816_896
    assert rows["buffers"].sum() == 30


# Training.


def test_a_training_graph_is_coloured_by_phase_with_what_is_saved_apart():
    problem = training().plan.problem
    found = colours.by_phase(problem)
    labels = dict(found.legend)
    assert list(labels) == ["forward", "backward", "saved for backward"]
    graph = problem.origin.graph
    saved = set(saved_activations(graph)) & set(problem.names)
    at = {
        name
        for name, index in zip(problem.names, found.index, strict=True)
        if index == labels["saved for backward"]
    }
    assert at == saved
    # The same colour for a phase in every graph: that of its band.
    assert found.palette[labels["backward"]] == colours.PHASE_COLOURS["backward"]
    assert widget(open_app(doc=TRAINING).selectbox, "Colour by").value == "phase"


def test_graphs_without_phases_have_one_class():
    found = colours.by_phase(to_problem(DIAMOND))
    assert found.legend == (("no phase", 0),)
    assert plan_panels.make_panel(make_facts(training().document, make_plan(DIAMOND)), found).bands == ()


def test_the_phases_are_bands_that_cover_all_steps():
    facts = training()
    panel = plan_panels.make_panel(facts, colours.by_phase(facts.plan.problem))
    assert [band.label for band in panel.bands] == ["forward", "backward"]
    first, second = panel.bands
    assert (first.start, first.end, second.end) == (0, second.start, panel.steps)


def test_the_areas_add_up_to_the_live_bytes():
    facts = training()
    areas = areas_of(facts.plan.problem)
    assert next(iter(areas.live)) == "saved for backward"
    assert (sum(areas.live.values()) == facts.profile.live).all()
    assert len(phase_areas.figure(areas).data) == 3


def test_what_min_cut_changes():
    app = open_app(tab="Training", doc=TRAINING)
    assert figure(app, "Saved for backward") == "688.61 MiB"
    assert figure(app, "Peak in backward") == "717.77 MiB"
    widget(app.selectbox, "Compare with another partition of the same model").set_value(
        "example:bert_training_min_cut"
    )
    check(app.run())
    assert "bert training min cut saves 28.3 % less activations and peaks 20.5 % less" in captions(app)
    assert address(app)["other"] == "example:bert_training_min_cut"
    widget(app.selectbox, "Compare with another partition of the same model").set_value("file:list.csv")
    check(app.run())
    assert app.error[0].value.replace("\\", "") == (
        "list.csv: found buffers without a graph, expected a training graph"
    )


def test_examples_of_training_are_small_enough_to_ship():
    for name in ("gpt2_training_step", "bert_training_default", "bert_training_min_cut"):
        path = documents.path_of(f"example:{name}")
        assert path.stat().st_size < 1_500_000
        assert json.loads(path.read_text())["format"] == "memplan/graph"
        assert load(path).ops


# Symbolic sizes.

DYNAMIC = "example:gpt2_dynamic"


def test_sliders_change_the_sizes_and_the_address():
    app = open_app(doc=DYNAMIC)
    assert [each.label.replace("\\", "") for each in app.slider] == ["batch (hint 2)", "seq (hint 64)"]
    assert figure(app, "Arena") == "6.38 MiB"
    app.slider[0].set_value(4)
    check(app.run())
    assert (figure(app, "Arena"), address(app)["symbols"]) == ("12.75 MiB", "batch=4")
    app.slider[1].set_value(128)
    check(app.run())
    assert (figure(app, "Arena"), address(app)["symbols"]) == ("25.5 MiB", "batch=4,seq=128")
    again = open_app(**address(app))
    assert ([each.value for each in again.slider], figure(again, "Arena")) == ([4, 128], "25.5 MiB")
    again.slider[0].set_value(2)
    again.slider[1].set_value(64)
    check(again.run())
    assert "symbols" not in address(again)


def test_symbols_out_of_range_are_told():
    app = open_app(doc=DYNAMIC, symbols="batch=65")
    assert app.error[0].value.replace("\\", "") == (
        "gpt2_dynamic: symbol 'batch': found 65, expected 1 to 64"
    )
    app = open_app(doc=DYNAMIC, symbols="width=2")
    assert "an unknown symbol, expected one of batch, seq" in app.error[0].value.replace("\\", "")


def test_graphs_without_symbols_have_no_sliders_and_no_tab():
    app = open_app()
    assert not app.slider
    assert "Sizes" not in [tab.label for tab in app.tabs]


def test_the_arena_over_a_symbol_the_range_and_buckets():
    app = open_app(tab="Sizes", doc=DYNAMIC)
    assert "Arena by auto over batch with seq = 64" in captions(app)
    assert "Temporaries and workspaces lie outside the arena: up to 192 KiB, at batch = 64." in captions(app)
    assert "fails at batch=3, seq=64: " in app.warning[0].value.replace("\\", "")
    limits = app.dataframe[0].value.set_index("symbol")["offsets fail from"].to_dict()
    assert limits == {"batch": "3", "seq": "65"}
    widget(app.text_input, "Buckets of batch: upper limits").set_value("4, 16")
    check(app.run())
    rows = app.dataframe[-1].value
    assert rows["batch"].tolist() == ["1 to 4", "5 to 16"]
    assert rows["offsets"].tolist() == ["proved", "proved"]
    widget(app.text_input, "Buckets of batch: upper limits").set_value("4, x")
    check(app.run())
    assert "found 'x', expected whole numbers" in app.error[0].value
    # The partition plan holds for every value.
    app = open_app(tab="Sizes", doc=DYNAMIC, strategy="partition", over="seq")
    assert "Arena by partition over seq with batch = 2" in captions(app)


def test_the_curve_marks_the_hint_and_what_is_shown():
    made = sweep(load(documents.path_of(DYNAMIC)), "batch", [1, 2, 8, 64])
    curve = size_curve.data(made, now=8)
    assert curve.lines["bound"] == made.bound
    assert all(p >= a >= b for p, a, b in zip(*curve.lines.values(), strict=True))
    chart = size_curve.figure(curve)
    assert [line.name for line in chart.data][-1] == "lower bound"
    assert list(chart.data[1].y) == [p / b - 1 for p, b in zip(made.partition, made.bound, strict=True)]
    assert [mark.text for mark in chart.layout.annotations] == ["hint 2", "shown 8"]
    assert chart.layout.xaxis.type == "log"


def test_what_is_hardly_over_the_bound_lies_flat_and_has_ticks_that_differ():
    curve = size_curve.Curve("batch", (1, 2), {"partition": (10**9 + 18,) * 2, "arena": (10**9,) * 2}, 1, 2)
    curve.lines["bound"] = (10**9,) * 2
    chart = size_curve.figure(curve)
    assert chart.layout.yaxis2.ticktext == ("0.00 %", "0.05 %", "0.10 %")
    assert chart.layout.yaxis2.range[1] >= 0.001
    assert list(chart.data[1].customdata) == ["< 0.001 %"] * 2


@pytest.mark.parametrize(
    ("top", "words"),
    [
        (0.0, "0.00 % 0.05 % 0.10 %"),
        (0.004, "0.0 % 0.2 % 0.4 %"),
        (0.07, "0 % 2 % 4 % 6 %"),
        (1.7, "0 % 50 % 100 % 150 %"),
        (12.0, "0 % 500 % 1000 %"),
    ],
)
def test_ticks_of_shares(top, words):
    assert " ".join(share_ticks(top).values()) == words


def test_what_reuse_saves_is_a_tab_and_two_switches():
    app = open_app(tab="Reuse", doc="example:squeezenet")
    ways = app.dataframe[0].value.set_index("way")
    assert ways["arena"].tolist() == ["6.02 MiB", "3.75 MiB", "6.02 MiB", "3.75 MiB"]
    assert ways["ops rewritten"].tolist() == [0, 26, 8, 34]
    assert figure(app, "Arena") == "6.02 MiB"
    widget(app.checkbox, "In-place elementwise ops").set_value(True)
    check(app.run())
    assert (figure(app, "Arena"), address(app)["in_place"]) == ("3.75 MiB", "1")


def test_an_option_that_makes_no_sense_leaves_the_document_open():
    app = open_app(doc="file:net.json", streams="-3")
    assert "streams: found '-3', expected 1 to 1,024 ops per step" in app.error[0].value.replace("\\", "")
    assert widget(app.selectbox, "Graph").value == "file:net.json"
    assert address(app) == {"doc": "file:net.json"}


def test_a_file_with_a_plan_opens_as_that_plan(tmp_path, monkeypatch):
    write_json(make_plan(DIAMOND, "shared_objects_by_size"), tmp_path / "plan.json")
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "plan.json")])
    app = open_app(tab="Shared objects")
    assert widget(app.selectbox, "Strategy").value == "imported"
    assert "objects, " in captions(app)


def test_two_models_are_not_two_partitions():
    app = open_app(tab="Training", doc=TRAINING, other="example:gpt2_training_step")
    assert "found other parameters than those of bert" in app.error[0].value.replace("\\", "")


def test_ticks_of_bytes_are_round():
    assert byte_values(0) == [0]
    assert byte_values(5) == [0, 1, 2, 3, 4, 5]
    assert byte_values(741) == [0, 128, 256, 384, 512, 640]
    assert byte_values(3 * 2**30) == [0, 2**30, 2 * 2**30, 3 * 2**30]


# What the figures count.


def test_pages_say_what_is_counted_and_what_lies_beside_the_arena():
    app = open_app(doc="example:bert_base", strategy="greedy_by_size")
    told = captions(app)
    assert "temporaries inside ops need up to 18 KiB more, outside it" in told
    assert "arena and 18 KiB of temporaries beside it: " in told
    assert "an eager run may need more" in told
    assert "counted: the graph's storages and the temporaries inside its ops" in told
    assert "optimal for the graph's storages: the arena equals" in told
    app = open_app("compare", doc="example:bert_base")
    assert "Counted: the graph's storages and the temporaries inside its ops" in captions(app)
    rows = app.dataframe[0].value
    assert "with workspace" not in rows
    pair = {side: f"example:diff_batch_{side}" for side in ("base", "head")}
    told = captions(open_app("diff", strategy="greedy_by_size", **pair))
    assert "Workspace 48 KiB → 96 KiB, +48 KiB (+100.0 %)." in told
    assert "Total 27.05 MiB → 54.09 MiB" in told


def test_what_an_op_holds_is_a_row_of_the_peak():
    app = open_app(doc="file:net.json", alignment="1")
    rows = app.dataframe[0].value
    assert rows["buffer"].tolist() == ["conv2.workspace", "b", "c", "unique workspaces"]
    assert rows["kind"].tolist()[0] == "workspace"


def test_steps_in_the_chart_say_what_their_ops_hold():
    panel = plan_panels.make_panel(
        make_facts(state.load_document("file:net.json", documents.Options()), make_plan(NET)),
        next(iter(colours.COLOURINGS.values()))(to_problem(NET)),
    )
    assert panel.step_labels == [
        "conv1, 100 B of workspaces outside the arena", "relu",
        "conv2, 300 B of workspaces outside the arena", "topk, 200 B of workspaces outside the arena",
    ]  # fmt: skip
