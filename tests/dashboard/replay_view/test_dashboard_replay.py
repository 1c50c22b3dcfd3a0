"""The Replay and Learn pages without a browser: what goes to it, what the URL says, and the course."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from tests import ROOT

pytest.importorskip("streamlit")
from memplan_dashboard.replay_view import Mode, exercise_values, make_message, trace_json
from memplan_dashboard.replay_view.component import MODULES, script
from memplan_dashboard.views import replay_choices
from memplan_dashboard.widgets import lessons
from memplan_dashboard.widgets.lessons import LESSONS, course_markdown, parse_lesson
from memplan_examples import PATH

from memplan_engine import load, make_exercise, make_plan, make_problem, make_replay
from memplan_engine.replay import make
from tests.support.apptest import address, check, open_app, widget


@pytest.fixture(autouse=True)
def _no_file_on_the_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["app.py"])


def leaves(block):
    for child in block.children.values():
        if hasattr(child, "children"):
            yield from leaves(child)
        else:
            yield child


def message(app):
    """What the browser got: {"view": …, "trace": …}."""
    (found,) = (each for each in leaves(app.main) if each.type == "bidi_component")
    return json.loads(found.proto.bytes)


def shown(app):
    """(graph, strategy, mode, step) that the page shows; the step counts from 1, as in the URL."""
    given = message(app)
    view, trace = given["view"], given["trace"]
    return trace["graph"], trace["strategy"], view["mode"], view["step"] + 1


def warnings(app):
    return " ".join(each.value for each in app.warning)


def teaching(name):
    return load(PATH / f"teaching_{name}.csv")


# What goes to the browser.


def test_the_browser_gets_the_engines_columns_and_what_is_drawn():
    replay = make_replay(teaching("gaps"), "greedy_by_size")
    trace = json.loads(trace_json(replay))
    assert trace["steps"]["sentence"] == [step.sentence for step in replay.steps]
    assert trace["steps"]["buffer"] == [2, 0, 1, 3]
    assert trace["code"] == list(replay.code)
    assert trace["steps"]["line"] == replay.line.tolist()
    assert trace["buffers"]["offset"] == replay.plan.offsets.tolist()
    assert trace["fixed"] == [-1, -1, 0, -1]
    assert trace["time_steps"] == 6
    # a keeps only its first byte in steps 2 and 3.
    rows = list(zip(*(trace["pieces"][key] for key in ("owner", "start", "end", "low", "high")), strict=True))
    assert [row[1:] for row in rows if row[0] == 0] == [(0, 2, 0, 4), (2, 4, 0, 1), (4, 6, 0, 4)]


def test_a_message_is_one_json_text_with_any_name_in_it():
    name = '</script><b onload="x">\\'
    problem = make_problem([0], [2], [4], names=[name])
    colours = replay_choices.Colouring(problem.size.astype("u1") * 0, (("#000000", "#ffffff"),), ())
    made = make_message(
        trace_json(make_replay(problem, "greedy_by_size")),
        mode=Mode.PREDICT, step=0, serial=7, color=colours.index, palette=colours.palette,
    )  # fmt: skip
    values = json.loads(made)
    assert values["trace"]["buffers"]["name"] == [name]
    assert values["view"]["mode"] == "predict"
    assert values["view"]["palette"] == [["#000000", "#ffffff"]]


def test_an_exercise_says_what_there_is_to_beat():
    values = exercise_values(make_exercise(teaching("greedy_by_size")), "key")
    assert (values["bound"], values["optimum"], values["rival"]["bytes"]) == (7, 7, 11)
    assert (
        values["rival"]["offsets"] == make_plan(teaching("greedy_by_size"), "greedy_by_size").offsets.tolist()
    )
    assert exercise_values(make_exercise(teaching("no_way_out")), "key")["rival"] is None


def test_no_two_modules_of_the_browser_side_share_a_name():
    """They are one scope in the browser: a second declaration of a name would stop all of it."""
    names = re.findall(r"^(?:function|class|const) (\w+)", script(), re.MULTILINE)
    assert len(names) > 80
    assert len(MODULES) == 30
    assert sorted(set(names)) == sorted(names)
    assert "import " not in re.sub(r"//.*|/\*.*?\*/", "", script())


# The page.


def test_predicting_begins_at_the_first_decision_that_is_one_wherever_the_replay_was():
    app = open_app("replay", doc="example:teaching_best_fit", step="8")
    app.button_group(key="replay_mode").set_value("predict")
    check(app.run())
    assert shown(app)[2:] == ("predict", 1)
    app.button_group(key="replay_mode").set_value("replay")
    check(app.run())
    assert shown(app)[2:] == ("replay", 1)
    # The first buffer there has a fixed offset; an address that names a step is followed.
    assert shown(open_app("replay", doc="example:teaching_gaps", mode="predict"))[3] == 2
    assert shown(open_app("replay", doc="example:teaching_gaps", mode="predict", step="3"))[3] == 3


def test_who_has_chosen_nothing_gets_a_teaching_graph_and_those_stand_first():
    app = open_app("replay")
    assert shown(app) == ("teaching_best_fit", "greedy_by_size", "replay", 1)
    options = widget(app.selectbox, "Graph").options
    kinds = [option.startswith("teaching") for option in options]
    assert kinds.count(True) == 9
    assert kinds == sorted(kinds, reverse=True)


@pytest.mark.parametrize(
    ("doc", "told"),
    [
        ("example:teaching_best_fit", "Counted: the buffers listed."),
        ("example:squeezenet", "Counted: the graph's storages; temporaries inside ops are unknown."),
        ("example:gpt2", "A replay places storages; temporaries and workspaces lie outside them."),
    ],
)
def test_the_page_says_what_is_counted(doc, told):
    app = open_app("replay", doc=doc, strategy="greedy_by_size")
    assert app.caption[-1].value.replace("\\", "").endswith(told)


@pytest.mark.parametrize(
    ("strategy", "family"),
    [
        ("linear_scan", "linear scan"),
        ("partition", "shared objects"),
        ("exact", "branch and bound"),
        ("naive", "no reuse"),
        ("first_fit_by_start", "order × fit"),
    ],
)
def test_the_url_says_what_is_shown(strategy, family):
    app = open_app("replay", doc="example:teaching_no_way_out", strategy=strategy, step="5")
    assert shown(app) == ("teaching_no_way_out", strategy, "replay", 5)
    assert message(app)["trace"]["family"] == family
    assert not app.warning


def test_choosing_goes_into_the_url_and_begins_anew():
    app = open_app("replay", step="4")
    first = message(app)["view"]["serial"]
    check(widget(app.selectbox, "Strategy").set_value("partition").run())
    assert shown(app) == ("teaching_best_fit", "partition", "replay", 1)
    assert message(app)["view"]["serial"] == first + 1
    assert address(app) == {"doc": "example:teaching_best_fit", "strategy": "partition"}
    check(widget(app.selectbox, "Graph").set_value("example:teaching_gaps").run())
    assert shown(app)[:2] == ("teaching_gaps", "greedy_by_size")
    assert "partition cannot be replayed here" in warnings(app)


def test_nothing_new_goes_to_the_browser_while_the_reader_steps():
    """The page hears where the reader is; a rerun must not take the reader back."""
    app = open_app("replay", step="2")
    before = message(app)
    app.session_state.replay_begun.reported = 5
    app.session_state.choices["step"] = "6"
    check(app.run())
    assert message(app) == before
    assert address(app)["step"] == "6"


def test_modes_are_offered_where_they_make_sense():
    def offered(**parameters):
        (group,) = open_app("replay", **parameters).button_group
        return len(group.options)

    assert offered() == 3
    assert offered(strategy="exact") == 2  # nothing to predict
    assert offered(doc="example:unet_training") == 2  # too many to be placed by hand


def test_by_hand_there_is_an_optimum_and_no_strategy_to_choose():
    app = open_app("replay", doc="example:teaching_greedy_by_size", mode="exercise")
    view = message(app)["view"]
    assert view["mode"] == "exercise"
    assert view["exercise"]["optimum"] == 7
    assert "Strategy" not in [each.label for each in app.selectbox]
    assert message(open_app("replay", mode="predict"))["view"]["exercise"] is None


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"step": "99"}, "step: found '99', expected 1 to 8"),
        ({"step": "<b>"}, r"step: found '\<b\>', expected 1 to 8"),
        ({"step": "-1"}, "found"),
        ({"step": "٣"}, "found"),
        ({"mode": "<script>"}, "expected replay, predict, exercise"),
        ({"strategy": "<script>"}, "expected one of those in the list"),
        ({"strategy": "search"}, "no final decision"),
        ({"strategy": "imported"}, "does not record how it was made"),
        ({"doc": "example:unet_training", "strategy": "exact"}, "582 buffers"),
        ({"lesson": "8"}, "expected 1 to 7"),
        ({"lesson": "x"}, "expected 1 to 7"),
    ],
)
def test_nonsense_in_the_url_is_said_and_the_first_step_shown(parameters, told):
    app = open_app("replay", **parameters)
    assert told.replace("\\", "") in warnings(app).replace("\\", "")
    assert shown(app)[1:] == ("greedy_by_size", "replay", 1)


def test_a_document_that_does_not_exist_is_an_error_and_another_is_shown():
    app = open_app("replay", doc="example:none")
    assert "no such file" in app.error[0].value
    assert message(app)["trace"]["strategy"] == "size × first fit"


def test_what_is_too_large_to_be_replayed_is_one_sentence(monkeypatch):
    monkeypatch.setattr(make, "MOST_BUFFERS", 7)
    app = open_app("replay", doc="example:teaching_best_fit", strategy="first_fit_by_start")
    (error,) = app.error
    said = error.value.replace("\\", "")
    assert said.endswith("8 buffers, and a replay of first_fit_by_start shows 7 at most")


# The course.


def test_no_lesson_gives_away_what_it_asks_for():
    """What is to be predicted comes up in the text as a question at most."""
    asked = [(lesson, place) for lesson in LESSONS for place in lesson.places if place.mode == "predict"]
    asked = [(lesson, place) for lesson, place in asked if place.step > 1]
    assert asked
    for lesson, place in asked:
        problem = load(PATH / f"{place.example}.csv")
        name = problem.names[make_replay(problem, place.strategy).steps[place.step - 1].buffer]
        if name == "a":  # also an article
            continue
        sentences = re.findall(r"[^.?!]+[.?!]", lesson.text)
        told = [each for each in sentences if re.search(rf"\b{name}\b", each)]
        assert told
        assert all(each.endswith("?") for each in told), told


def test_the_course_in_docs_is_that_of_the_dashboard():
    assert (ROOT / "docs" / "course.md").read_text("utf-8") == course_markdown()
    assert len(LESSONS) == 7


@pytest.mark.parametrize("number", range(1, len(LESSONS) + 1))
def test_each_lesson_opens_where_its_links_say(number):
    lesson = LESSONS[number - 1]
    for place in lesson.places:
        given = {name: value for name, value in place.choices(number).items() if value}
        app = open_app("replay", **given)
        assert not app.warning
        assert not app.error
        if place.mode.startswith("order"):
            assert app.session_state["order_way"] == place.mode == address(app)["mode"]
            continue
        strategy = place.strategy or "greedy_by_size"
        assert shown(app) == (place.example, strategy, place.mode or "replay", place.step)
        assert lesson.title in app.expander[0].label
    assert lesson.text in [each.value for each in app.markdown]


def test_lessons_lead_on():
    app = open_app("replay", lesson="1", doc="example:teaching_linear_scan", strategy="naive")
    app.button(key="lesson_2").click()
    check(app.run())
    assert shown(app) == ("teaching_first_fit", "first_fit_by_start", "predict", 5)
    assert address(app)["lesson"] == "2"
    app.button(key="lesson_close").click()
    check(app.run())
    assert "lesson" not in address(app)
    assert not app.expander


def test_learn_opens_replay():
    app = open_app("learn")
    assert [each.value for each in app.subheader] == [
        f"{number}. {lesson.title}" for number, lesson in enumerate(LESSONS, 1)
    ]
    assert parse_lesson("3") == 3
    assert parse_lesson("03") == parse_lesson("") == 0


def answers(app):
    return [each.value for each in app.success]


def test_an_answer_comes_after_the_learners_own_and_stays(own_uploads, monkeypatch):
    place = {"doc": "example:teaching_linear_scan", "strategy": "linear_scan", "mode": "predict"}
    app = open_app("replay", lesson="4", step="3", **place)
    assert (answers(app), answers(open_app("learn"))) == ([], [])
    session = SimpleNamespace(session_state={})
    monkeypatch.setattr(lessons.progress, "st", session)
    monkeypatch.setattr(lessons.state, "get", lambda name: "4")
    lessons.take_answer(1, 4)
    assert lessons.progress.done() == frozenset()
    lessons.take_answer(2, 4)
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", ["app.py"])
    monkeypatch.setattr(lessons.progress.uploads, "folder", lambda: own_uploads)
    assert answers(open_app("replay", lesson="4", step="3", **place)) == [LESSONS[3].answer]
    app = open_app("learn")
    assert answers(app) == [LESSONS[3].answer]
    app.button(key="answer_6").click()
    assert answers(check(app.run())) == [LESSONS[3].answer, LESSONS[5].answer]
    assert (own_uploads / "lessons").read_text() == "4 6"
    (own_uploads / "lessons").write_text("4 <b> 99999 -1 \u0663", "utf-8")
    assert answers(open_app("learn")) == [LESSONS[3].answer]


def asks_within_its_box(root):
    """The question is the last text, its box the last rectangle; it is above all that is placed there."""
    name = "{http://www.w3.org/2000/svg}"
    text, *_ = reversed(list(root.iter(f"{name}text")))
    *placed, box = root.iter(f"{name}rect")
    left, width = float(box.get("x")), float(box.get("width"))
    high = float(text.get("font-size"))
    assert float(text.get("x")) + 0.62 * high * len(text.text) <= left + width
    for other in placed:
        begin, size = float(other.get("x")), float(other.get("width"))
        if begin < left + width and left < begin + size:
            assert float(text.get("y")) < float(other.get("y"))


def test_each_lesson_has_a_picture_without_its_answer():
    for lesson in LESSONS:
        for dark in (False, True):
            drawn, told = lessons.picture(lesson, dark)
            root = ElementTree.fromstring(drawn)
            names = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
            if lesson.places[0].mode == "order":
                assert all(name in told for name in names)
                continue
            assert ", ".join(name for name in names if "where?" not in name) in told
            if lesson.places[0].mode == "predict":
                assert names[-1].endswith("where?")
                assert len(names) == lesson.places[0].step
                asks_within_its_box(root)


def arena(name, strategy):
    return make_plan(teaching(name), strategy).arena_bytes


def test_what_the_lessons_say_is_so():
    assert arena("linear_scan", "naive") == 14
    assert arena("linear_scan", "exact") == 7
    first_fit = make_replay(teaching("first_fit"), "first_fit_by_start")
    e, f = first_fit.steps[4], first_fit.steps[5]
    assert (e.name, e.hole.size, e.offset) == ("e", 3, 0)
    assert 2 in [hole.size for hole in e.holes]
    assert f.name == "f"
    assert (f.arena_before, f.arena_after) == (7, 10)
    assert arena("first_fit", "exact") == 7
    best_fit = make_replay(teaching("best_fit"), "greedy_by_size")
    assert best_fit.steps[5].hole.size == 2
    assert best_fit.steps[6].arena_after == 12
    assert arena("greedy_by_size", "greedy_by_size") == 11
    assert arena("greedy_by_size", "exact") == 7
    scan = make_replay(teaching("linear_scan"), "linear_scan").steps[2]
    assert scan.name == "c"
    assert scan.holes[0].short == 1
    assert scan.arena_after == 12
    objects = make_replay(teaching("greedy_by_size"), "shared_objects_by_size").steps[3]
    assert objects.name == "a"
    assert objects.joined is None
    tree = make_replay(teaching("no_way_out"), "exact")
    assert [step.node.capacity for step in tree.steps if step.node.kind == "root"] == [5, 6]


# Who decides, and at which decision.


def captions(app):
    return " ".join(each.value for each in app.caption).replace("\\", "")


def test_autos_plan_is_replayed_as_what_found_it():
    app = open_app("replay", doc="example:squeezenet")
    assert widget(app.selectbox, "Strategy").value == "auto"
    trace = message(app)["trace"]
    plan = make_plan(load(PATH / "squeezenet.onnx"), "auto")
    assert trace["strategy"] == "start × first fit"
    assert trace["buffers"]["offset"] == plan.offsets.tolist()
    assert "auto's plan, 6.02 MiB, was found by start × first fit: these are its decisions." in captions(app)


@pytest.mark.parametrize(
    ("found", "strategy", "told"),
    [
        (
            "branch and bound",
            "greedy_by_size",
            "comes from branch and bound, which cannot be replayed here: this is greedy_by_size.",
        ),
        ("size × first fit, repaired", "size × first fit", "began as size × first fit and was then repaired"),
    ],
)
def test_what_was_repaired_or_cannot_be_replayed_is_said(found, strategy, told, monkeypatch):
    plan = make_plan(load(PATH / "squeezenet.onnx"), "greedy_by_size")
    made = replace(plan, parameters=(("found_by", found),))
    monkeypatch.setattr(
        replay_choices.searches, "known_facts", lambda document, name: SimpleNamespace(plan=made)
    )
    app = open_app("replay", doc="example:squeezenet", strategy="auto")
    assert message(app)["trace"]["strategy"] == strategy
    assert told in captions(app)


def test_a_link_to_a_buffer_opens_its_decision():
    app = open_app("replay", doc="example:teaching_best_fit", buffer="f")
    trace = message(app)["trace"]
    assert trace["buffers"]["name"][trace["steps"]["buffer"][message(app)["view"]["step"]]] == "f"
    assert address(app) == {"doc": "example:teaching_best_fit", "buffer": "f"}
    app = check(widget(app.selectbox, "Strategy").select("linear_scan").run())
    trace = message(app)["trace"]
    assert trace["buffers"]["name"][trace["steps"]["buffer"][message(app)["view"]["step"]]] == "f"
    app = open_app("replay", doc="example:teaching_best_fit", buffer="<b>")
    assert shown(app)[3] == 1
    assert "expected the name of a buffer of" in warnings(app)


def test_the_document_that_is_open_stays_open():
    app = open_app()
    app = check(app.switch_page("views/replay_strategy.py").run())
    assert shown(app)[0] == "gpt2"
