"""Inspect answers first: the sentence, the chips, and suggestions that are applied and undone."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.session import documents, plan_facts, state
from memplan_dashboard.session.advising import Advising
from memplan_dashboard.widgets import plan_panels
from memplan_dashboard.widgets.panes_of import panes_of

from memplan_engine import SolveLimits, load, make_plan
from memplan_engine.advice.advise import advise
from memplan_engine.formats.memplan_json.json_file import write_json
from memplan_engine.graph import Op
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.units import format_bytes
from tests import ROOT
from tests.support.apptest import address, advised, check, chips_of, figure, open_app, widget
from tests.support.graphs import make_graph
from tests.support.waiting import HANG_SECONDS, wait_until

BEGIN = Advising.begin
GPT2 = ROOT / "example_graphs" / "gpt2.json"


@pytest.fixture(autouse=True)
def _no_file(monkeypatch):
    monkeypatch.setattr("sys.argv", ["app.py"])


@cache
def advice_on(name):
    """The engine's advice on an example."""
    return advise(load(ROOT / "example_graphs" / name), limits=SolveLimits(HANG_SECONDS))


@pytest.mark.parametrize("name", ["teaching_view", "teaching_sharing"])
def test_suggestions_may_have_the_same_title(name):
    app = advised(open_app(doc=f"example:{name}"))
    assert [each.label for each in app.button if each.key and each.key.startswith("apply_")]
    check(app.run())


def test_what_another_visit_applied_is_taken_back_whole():
    app = advised(open_app(doc="example:gpt2", in_place="1", what_if="resize:addmm=1024"))
    told = "".join(each.value for each in app.caption).replace("\\", "")
    assert "Applied: what-if edits, In-place elementwise" in told
    widget(app.button, "Undo all").click()
    app = advised(check(app.run()))
    assert not {"in_place", "what_if"} & set(address(app))
    assert "undo_suggestion" not in [each.key for each in app.button]


def sentence(app):
    return app.subheader[0].value.replace("\\", "")


def test_a_suggestion_is_applied_kept_in_the_address_and_undone():
    app = advised(open_app(doc="example:gpt2", capacity="40"))
    assert "Does not fit, 11 MiB over" in chips_of(app)
    in_place = make_plan(prepare(load(GPT2), Preparation(in_place=True)))
    saved = 51 * 2**20 - in_place.arena_bytes
    title = "Write 98 results in place"
    saves = f":green[**−{format_bytes(saved)}**] {title}"
    assert saves in [each.value for each in app.markdown]
    next(each for each in app.button if each.key and each.key.endswith(f"_{title}")).click()
    app = advised(check(app.run()))
    assert (address(app)["in_place"], figure(app, "Arena")) == ("1", format_bytes(in_place.arena_bytes))
    assert "Fits, 1 MiB to spare" in chips_of(app)
    assert sentence(app).startswith("Graph peak 39 MiB at ")
    widget(app.button, "Undo").click()
    app = advised(check(app.run()))
    assert ("in_place" in address(app), figure(app, "Arena")) == (False, "51 MiB")
    assert "Undo" not in [each.label for each in app.button if each.key == "undo_suggestion"]


def test_every_suggestion_is_on_the_page_and_the_last_can_be_applied():
    app, suggestions = (
        advised(open_app(doc="example:teaching_view")),
        advice_on("teaching_view.json").suggestions,
    )
    applies = [each for each in app.button if each.key and each.key.startswith("apply_")]
    assert len(applies) == len(suggestions) > 4
    last = suggestions[-1]
    assert applies[-1].key.endswith(f"_{last.title}")
    applies[-1].click()
    app = advised(check(app.run()))
    assert figure(app, "Arena") == format_bytes(last.arena_bytes)


def test_a_chip_says_what_stands_behind_it_once():
    app = open_app(doc="example:resnet50")
    helps = {
        each.value.partition("[")[2].rstrip("]"): each.proto.help for each in app.markdown if each.proto.help
    }
    helps = {name.replace("\\", ""): text.replace("\\", "") for name, text in helps.items()}
    assert helps["Arena 9.19 MiB"] == "9.19 MiB (9,633,792 B). Meets the bound"
    assert helps["Lower bound 9.19 MiB"].count("peak live bytes") == 1
    assert helps["Reuse saves 92.5 %"].count("122.22 MiB without reuse") == 1
    # Two totals, each with what it is of.
    assert helps["On the device 99.66 MiB"].startswith("Arena, temporaries beside it, and what lies outside")
    notes = " ".join(each.value.replace("\\", "") for each in app.caption)
    assert "arena and 1.53 MiB of temporaries beside it: 10.72 MiB, without weights" in notes


def test_another_document_has_nothing_to_undo():
    app = advised(open_app(doc="example:teaching_view"))
    next(each for each in app.button if each.label == "Apply").click()
    app = advised(check(app.run()))
    assert [each for each in app.button if each.key == "undo_suggestion"]
    widget(app.selectbox, "Graph").set_value("example:teaching_gaps")
    app = advised(check(app.run()))
    assert not [each for each in app.button if each.key == "undo_suggestion"]


def test_what_was_tried_and_is_not_offered_has_its_reason():
    app, advice = advised(open_app(doc="example:squeezenet")), advice_on("squeezenet.onnx")
    said = [each.replace("\\", "") for each in rejections(app)]
    assert len(advice.rejected) > 2
    assert said == [f"**{each.title}**: {each.reason}" for each in advice.rejected]
    assert not rejections(advised(open_app(doc="example:teaching_gaps")))
    assert "Write 26 results in place." in [each.value.replace("\\", "") for each in app.markdown]


def test_a_page_is_drawn_before_its_advice_which_a_thread_looks_for_once(monkeypatch):
    monkeypatch.setattr(Advising, "begin", BEGIN)
    document = state.load_document("example:teaching_view", documents.Options())
    advising = Advising((document, (), "auto", None))
    assert not advising.done.is_set()
    advising.begin()
    advising.begin()
    wait_until(advising.done.is_set)
    assert advising.advice.complete
    titles = [each.title for each in advice_on("teaching_view.json").suggestions]
    assert [each.title for each in advising.advice.suggestions] == titles


def rejections(app):
    return [each.value for each in app.markdown if each.value.startswith("**") and "**: " in each.value]


def test_where_nothing_saves_it_says_why():
    app = advised(open_app(doc="example:teaching_gaps"))
    (said,) = [each.value for each in app.caption if each.value.startswith("No suggestion")]
    assert "no ops that could be rewritten. Fits in" in said.replace("\\", "")


def test_panes_travel_only_where_the_browser_has_everything(monkeypatch):
    document = state.load_document("example:gpt2", documents.Options())
    facts = plan_facts.make_facts(document, make_plan(document.problem))
    colouring = COLOURINGS["size"](document.problem)
    assert plan_panels.make_panel(facts, colouring, panes=True).panes is panes_of(document.problem)
    assert plan_panels.make_panel(facts, colouring).panes is None
    monkeypatch.setattr(plan_panels, "MOST_VECTORS", 5)
    assert plan_panels.make_panel(facts, colouring, panes=True).panes is None


def test_exact_bytes_and_what_is_known_of_them_stand_with_the_files():
    app = open_app(doc="example:gpt2")
    assert "Arena 53,477,376 B · Optimal for the graph's storages" in [each.value for each in app.caption]
    app = open_app(doc="example:gpt2", strategy="naive")
    (told,) = [each.value for each in app.caption if each.value.startswith("Arena 1,7")]
    assert " B · Optimality not proved, " in told


def test_sentence_table_and_file_speak_of_the_step_that_is_marked():
    app = open_app(doc="example:gpt2", at="234")
    assert sentence(app).startswith("39 MiB live at h.5.mlp.act · mul.4 (step 234):")
    table = app.dataframe[0].value
    assert (table["bytes"].sum(), round(table["share"].sum(), 9)) == (39 << 20, 1)
    assert any("39 MiB live at step 234, " in each.value for each in app.caption)
    # Of two, what changes: layer 2 at its highest, and before it what layer 8 has by then.
    app = open_app(doc="example:gpt2", at="234,118")
    assert sentence(app).startswith("Step 118 holds 12 MiB more than step 234:")
    table = app.dataframe[0].value
    assert table["bytes"].sum() == 12 << 20
    assert (table["size"][0], "share" in table) == ("+12 MiB", False)
    before, after = (set(names) for _, names in table.groupby(table["bytes"] > 0)["module"])
    assert {name.split(".")[2] for name in before} == {"5"}
    assert {name.split(".")[2] for name in after} == {"2"}
    # Without a mark, of the peak.
    app = open_app(doc="example:gpt2")
    assert any("51 MiB live at step 44 (peak), " in each.value.replace("\\", "") for each in app.caption)


def test_how_a_file_is_read_is_nothing_that_was_applied():
    app = advised(open_app(doc="example:gpt2", as_plan="1"))
    assert "undo_suggestion" not in [each.key for each in app.button]


def test_what_lies_beside_the_arena_of_a_training_step_is_not_all_weights():
    notes = [each.value.replace("\\", "") for each in open_app(doc="example:gpt2_training_step").caption]
    # Adam keeps two values for each weight.
    assert any("weights 258.4 MiB, optimizer state 516.79 MiB (separate)" in each for each in notes)
    notes = [each.value.replace("\\", "") for each in open_app(doc="example:gpt2").caption]
    assert any("weights 474.7 MiB (separate)" in each for each in notes)


def test_a_graph_with_an_op_that_runs_another_one_is_never_green(tmp_path, monkeypatch):
    ops = (Op("choose", "If", ("flag", "x"), ("y",)), Op("neg", "Neg", ("y",), ("z",)))
    sizes = {"flag": 1, "x": 2**20, "y": 2**20, "z": 2**20}
    graph = make_graph(ops, sizes, inputs=("flag", "x"), outputs=("z",))
    write_json(graph, tmp_path / "routed.json")
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "routed.json")])
    app = open_app(capacity="4")
    assert sentence(app).startswith("Graph peak at least 2 MiB at ")
    assert {"Optimal for the graph's storages outside If", "Undecided, 2 MiB to spare"} <= set(chips_of(app))
    assert not [each.value for each in app.markdown if each.value.startswith(":green-badge")]
