"""The tab "What if" of Inspect, without a browser: change, undo, capacity, suggestions, export, addresses."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("streamlit")

from memplan_engine import load, make_plan
from memplan_engine.feasibility.decision import find_core
from memplan_engine.problem import FREE
from tests import ROOT
from tests.support.apptest import address, check, figure, open_app, widget

CSV = "id,lower,upper,size\na,0,3,100\nb,1,4,50\nc,3,5,120\n"
EDITS = {"tab": "What if"}


@pytest.fixture(autouse=True)
def _list(tmp_path, monkeypatch):
    (tmp_path / "list.csv").write_text(CSV)
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "list.csv")])


def shown(app):
    """What the page says, without the escapes of Markdown."""
    parts = [*app.error, *app.success, *app.warning, *app.caption, *app.text]
    return "\n".join(each.value for each in parts).replace("\\", "")


def press(app, label):
    next(each for each in app.button if each.label == label).click()
    return check(app.run())


def change(app, action, **fields):
    """Choose an action, fill its fields, press the button."""
    app.segmented_control(key="what_if_action").set_value(action)
    check(app.run())
    for label, value in fields.items():
        kind = app.number_input if isinstance(value, int) else app.text_input
        widget(kind, label.replace("_", " ")).set_value(value)
    check(app.run())
    return press(app, "Drop it" if action == "Drop" else "Change")


def test_without_changes_there_is_a_tab_and_no_bar():
    app = open_app(tab="What if")
    assert "Select a buffer in the chart or in a table" in shown(app)
    assert not app.metric
    assert "What if" in [each.label for each in app.tabs]


@pytest.mark.parametrize(
    ("action", "fields", "text", "arena"),
    [
        ("Resize", {"New_size": "20"}, "resize:b=20", "140 B"),
        ("Resize", {"New_size": "1KiB"}, "resize:b=1024", "1.12 KiB"),
        ("Drop", {}, "drop:b", "120 B"),
        ("Pin", {"Offset": "120"}, "pin:b=120", "170 B"),
        ("Split", {"Parts": 2}, "split:b=2", "170 B"),
        ("Lifetime", {"Last_step": 2}, "lifetime:b=1:3", "150 B"),
        ("Align", {"Alignment": "64"}, "align:b=64", "170 B"),
    ],
)
def test_each_change_plans_anew_and_is_in_the_address(action, fields, text, arena):
    app = open_app(selected="b", **EDITS)
    change(app, action, **fields)
    assert address(app)["what_if"] == text
    assert figure(app, "Arena") == arena
    assert address(app).get("selected") == {"Split": "b#1", "Drop": None}.get(action, "b")


def test_before_and_after_and_undo_redo_reset():
    app = open_app(selected="b", what_if="resize:b=20", **EDITS)
    metrics = {each.label: (each.value, each.delta) for each in app.metric}
    assert metrics["Arena, before → after"] == ("170 B → 140 B", "−30 B")
    assert metrics["Packing loss, before → after"] == ("0 B", "unchanged")
    assert "1. resize b to 20 B" in shown(app)
    press(app, "Undo")
    assert "what_if" not in address(app)
    assert figure(app, "Arena") == "170 B"
    press(app, "Redo")
    assert (address(app)["what_if"], figure(app, "Arena")) == ("resize:b=20", "140 B")
    press(app, "Reset")
    assert "what_if" not in address(app)


def test_a_part_can_be_selected_and_changed():
    app = open_app(selected="b#2", what_if="split:b=2", **EDITS)
    change(app, "Drop")
    assert address(app)["what_if"] == "split:b=2;drop:b#2"
    assert figure(app, "Arena") == "145 B"


def test_one_change_of_several_is_taken_back_unless_others_need_it():
    app = open_app(what_if="split:b=2;drop:b#2;resize:a=10", **EDITS)
    app.button(key="what_if_remove_0").click()
    check(app.run())
    assert "it is needed by a later change: list.csv: edit 1 (drop 'b#2')".replace(".csv", "") in shown(app)
    app.button(key="what_if_remove_1").click()
    check(app.run())
    assert address(app)["what_if"] == "split:b=2;resize:a=10"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"New_size": "much"}, "new size: found 'much'"),
        ({"New_size": str(2**62) + "0"}, "new size: found"),
    ],
)
def test_what_cannot_be_is_explained_and_changes_nothing(fields, told):
    app = open_app(selected="b", **EDITS)
    change(app, "Resize", **fields)
    assert told in shown(app)
    assert "what_if" not in address(app)
    change(app, "Split", Parts=51)
    assert "field parts: found 51, expected at most 50" in shown(app)
    change(app, "Lifetime", First_step=0)
    assert "field start: found 0:4, expected steps within the lifetime 1:4" in shown(app)
    assert figure(app, "Arena") == "170 B"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "what if: edit 1: found 'nonsense'"),
        ("drop:nobody", "field buffer: no such buffer"),
        ("resize:b=<script>", "expected a whole number"),
        ("drop:a;" * 300, "expected at most 200"),
    ],
)
def test_nonsense_in_the_address_is_explained_and_left_out(text, told):
    app = open_app(what_if=text, **EDITS)
    assert told in shown(app)
    assert "what_if" not in address(app)
    assert figure(app, "Arena") == "170 B"


def test_pins_that_collide_are_explained_and_can_be_undone():
    app = open_app(what_if="pin:a=0;pin:b=50", **EDITS)
    assert "fixed offsets collide: a and b overlap" in shown(app)
    assert figure(app, "Arena") == "170 B"
    press(app, "Undo")
    assert (address(app)["what_if"], figure(app, "Arena")) == ("pin:a=0", "170 B")
    assert not app.error


def test_the_capacity_its_answer_and_a_suggestion_a_click_away():
    app = open_app(selected="b", **EDITS)
    widget(app.text_input, "Fits in").set_value("160")
    app.session_state["proof"] = True
    check(app.run())
    assert address(app)["capacity"] == repr(160 / 2**20)
    assert "the arena does not fit in 160 B, proved (peak live bytes); packing alone reaches 170 B" in shown(
        app
    )
    assert "shrink c by 10 B, to 110 B" in shown(app)
    assert "proved: no smaller shrink of one buffer is enough" in shown(app)
    press(app, "Apply")
    assert address(app)["what_if"] == "resize:c=110"
    assert "the arena fits in 160 B, 0 B to spare" in shown(app)


def test_a_capacity_that_nothing_fits_names_the_buffers_that_prove_it():
    app = open_app(doc="example:teaching_no_way_out", capacity="5B")
    app.session_state["proof"] = True
    check(app.run())
    (core,) = [each for each in app.expander if "alone cannot fit" in each.label]
    assert core.label.replace("\\", "") == "8 buffers alone cannot fit: 6 B within steps 0–4."
    table = core.dataframe[0].value
    plan = make_plan(load(ROOT / "example_graphs" / "teaching_no_way_out.csv"), "exact")
    known = find_core(plan.problem, plan.bound, 5).problem
    assert sorted(table["buffer"]) == sorted(known.names)
    assert table["bytes"].tolist() == sorted(known.size.tolist(), reverse=True)
    assert table["lifetime"][0] == "step 0"
    # Where it fits there is none.
    app = open_app(doc="example:teaching_no_way_out", capacity="6B")
    app.session_state["proof"] = True
    assert not [each for each in check(app.run()).expander if "alone" in each.label]


def test_everything_dropped_can_be_undone():
    app = open_app(what_if="drop:a;drop:b;drop:c", **EDITS)
    assert figure(app, "Arena") == "0 B"
    press(app, "Undo")
    assert figure(app, "Arena") == "120 B"


def test_another_document_begins_without_changes():
    app = open_app(what_if="drop:b", **EDITS)
    app.selectbox[0].set_value("example:teaching_gaps")
    check(app.run())
    assert "what_if" not in address(app)


def test_the_changed_plan_of_a_graph_keeps_what_is_known_of_its_buffers():
    app = open_app(
        doc="example:gpt2", selected="add_2", what_if="resize:add_2=524288;drop:embedding", **EDITS
    )
    assert "modeling_gpt2.py:282" in app.subheader[0].value.replace("\\", "")
    assert widget(app.selectbox, "Colour by").value == "module role"


def test_a_plan_that_the_file_brought_is_planned_anew_when_it_is_changed(tmp_path, monkeypatch):
    (tmp_path / "plan.csv").write_text("id,lower,upper,size,offset\na,0,4,10,0\nb,1,3,20,10\nc,2,4,10,30\n")
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "plan.csv")])
    app = open_app(as_plan="1", what_if="drop:b", **EDITS)
    assert figure(app, "Arena") == "20 B"


def test_what_is_exported(monkeypatch):
    """The buttons hand over what the engine writes; AppTest cannot press them."""
    from memplan_dashboard.views.inspect import what_if_view

    kept = {}

    def keep(label, content, *_, **about):
        if about.get("key", "").startswith("what_if_export_"):
            kept[label] = (content(), about)

    monkeypatch.setattr(what_if_view.st, "download_button", keep)
    open_app(what_if="split:b=2;pin:a=0", **EDITS)
    plan = json.loads(kept["Plan, JSON"][0])
    assert plan["problem"]["names"] == ["a", "b#1", "b#2", "c"]
    assert plan["problem"]["fixed"][0] == 0
    assert kept["Problem, CSV"][0].splitlines()[1] == b"a,0,3,100,0"
    assert len(kept["Plan, CSV"][0].splitlines()) == 5
    assert json.loads(kept["Changes, JSON"][0])["edits"][1] == {"kind": "pin", "buffer": "a", "offset": 0}
    assert kept["Plan, JSON"][1]["file_name"] == "list-what-if-plan.json"
    assert FREE not in plan["offsets"]
