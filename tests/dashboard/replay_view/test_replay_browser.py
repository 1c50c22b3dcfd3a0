"""The replay in a real browser: what each step draws and says, keys, guesses, placing by hand.

Most of it runs on an empty page with the component alone; what its own JavaScript judges is held against the
engine.
"""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

pytest.importorskip("playwright")
pytest.importorskip("streamlit")

from memplan_dashboard.replay_view import Mode, exercise_values, trace_json
from memplan_examples import PATH

from memplan_engine import agrees, judge, load, make_exercise, make_problem, make_replay
from tests.dashboard.replay_view.mounted_replay import View

ON_PLACING = ("greedy_by_size", "first_fit_by_start", "greedy_by_area", "linear_scan", "naive")
SHARING = ("shared_objects_by_size", "shared_objects_in_order", "partition")

JUDGEMENTS = {"agrees", "misaligned", "fixed", "overlaps", "other hole", "higher than needed", "lower"}


def teaching(name):
    return load(PATH / f"teaching_{name}.csv")


def test_each_step_has_its_picture_its_sentence_and_its_line(open_view):
    replay = make_replay(teaching("best_fit"), "greedy_by_size")
    view = open_view(replay)
    pictures = set()
    for step in replay.steps:
        assert view.step == step.number + 1
        assert view.sentence == step.sentence
        assert view.lit == replay.code[step.line].strip()
        pictures.add(view.picture())
        view.page.keyboard.press("ArrowRight")
    assert len(pictures) == len(replay)
    assert view.step == len(replay)


def test_the_canvas_has_a_table_of_what_is_placed(open_view):
    replay = make_replay(teaching("first_fit"), "first_fit_by_start")
    view = open_view(replay, step=1)
    table = view.page.locator(f"#{view.page.locator('canvas.picture').get_attribute('aria-details')}")
    assert table.locator("caption").text_content() == "2 buffers placed"
    texts = [row.locator("td").all_text_contents() for row in table.locator("tbody tr").all()]
    assert texts == [["a", "3 B", "0 B", "step 0"], ["b", "1 B", "3 B", "steps 0–1"]]
    view.page.keyboard.press("ArrowRight")
    assert view.step == 3
    assert table.locator("caption").text_content() == "3 buffers placed"
    # What is to be predicted is not given away.
    guessed = open_view(replay, Mode.PREDICT, step=1)
    table = guessed.page.locator(f"#{guessed.page.locator('canvas.picture').get_attribute('aria-details')}")
    assert table.locator("tbody tr td:first-child").all_text_contents() == ["a"]


def test_candidates_are_listed_with_their_reasons(open_view):
    view = open_view(make_replay(teaching("best_fit"), "greedy_by_size"), step=5)
    rows = [row.inner_text().split("\n") for row in view.page.locator(".row").all()]
    assert rows == [
        ["✕", "at 0 B", "3 B", "fits, but is not the tightest"],
        ["✓", "at 6 B", "2 B", "chosen"],
        ["✕", "at 10 B", "top of stack", "only used when no hole fits"],
    ]


def test_a_linear_scan_has_its_free_list_and_active_set(open_view):
    view = open_view(make_replay(teaching("linear_scan"), "linear_scan"), step=2)
    assert view.page.locator("h4").all_inner_texts() == ["Free list", "Active set, 1 buffer"]
    assert view.page.locator(".row .reason").all_inner_texts() == ["too small by 1 B"]
    assert view.page.locator(".chip").all_inner_texts() == ["b until 3"]


def test_shared_objects_are_listed_as_they_were_before_the_step(open_view):
    view = open_view(make_replay(teaching("greedy_by_size"), "shared_objects_by_size"), step=1)
    rows = [row.inner_text().split("\n") for row in view.page.locator(".row").all()]
    assert rows == [["✓", "object 0", "4 B", "chosen"]]


def test_the_search_tree_grows_and_a_click_goes_to_a_node(open_view):
    replay = make_replay(teaching("no_way_out"), "exact")
    view = open_view(replay)
    tree, canvas = "canvas => canvas.toDataURL()", view.page.locator("canvas.branches")
    first = canvas.evaluate(tree)
    view.page.keyboard.press("End")
    assert view.step == len(replay)
    assert canvas.evaluate(tree) != first
    assert view.page.locator(".fact").all_inner_texts()[-1].startswith("Node\nsolved")
    # Nothing is cut at the sides.
    inked = "(canvas, x) => canvas.getContext('2d').getImageData(x, 0, 3, canvas.height).data.some(Boolean)"
    assert not any(canvas.evaluate(inked, x) for x in (0, canvas.evaluate("canvas => canvas.width - 3")))
    # The root, in the middle of the upper edge: the only thing there.
    where = canvas.evaluate(
        """canvas => {
            const ratio = canvas.width / canvas.clientWidth;
            const row = canvas.getContext('2d').getImageData(0, 24 * ratio, canvas.width, 1).data;
            return row.findIndex((value, at) => at % 4 === 3 && value > 128) / 4 / ratio;
        }"""
    )
    canvas.click(position={"x": where + 4, "y": 24})
    assert view.step == 1
    assert view.sentence == replay.steps[0].sentence


def test_keys_move_and_play(timed_page):
    view = View(timed_page, make_replay(load(PATH / "unet_training.csv"), "greedy_by_size"))
    press = view.page.keyboard.press
    for key, step in (
        ("End", 582),
        ("ArrowLeft", 581),
        ("Home", 1),
        ("PageDown", 11),
        ("Shift+ArrowRight", 21),
    ):
        press(key)
        assert view.step == step
    view.page.get_by_role("button", name="one on").click()
    assert view.step == 22
    view.page.clock.pause_at(3_600)
    speed = int(view.page.get_by_label("steps a second").input_value())
    press("Space")
    view.page.clock.run_for(2_000)
    assert view.step == 22 + 2 * speed
    press("Space")
    stopped = view.step
    view.page.clock.run_for(2_000)
    assert view.step == stopped
    view.page.get_by_role("button", name="one back").focus()
    press("Space")
    assert view.step == stopped - 1
    view.page.locator(".slider").evaluate("s => { s.value = 300; s.dispatchEvent(new Event('input')); }")
    assert view.step == 300
    view.page.clock.run_for(1_000)
    assert view.page.evaluate("() => window.sent.at(-1)") == ["step", {"step": 299, "serial": 1}]


def test_names_are_text_whatever_they_are(open_view):
    name = "<img src=x onerror='window.hacked = 1'>"
    view = open_view(
        make_replay(make_problem([0, 0], [2, 2], [4, 8], names=[name, "b"]), "linear_scan"), step=1
    )
    view.page.keyboard.press("Home")
    view.page.keyboard.press("End")
    assert name in view.page.locator(".chips").inner_text() + view.page.locator(".heading").inner_text()
    assert view.page.evaluate("() => [window.hacked, document.images.length]") == [None, 0]


# Predict.


def test_a_guess_is_judged_and_the_next_question_waits(open_view):
    replay = make_replay(teaching("best_fit"), "greedy_by_size")
    view = open_view(replay, Mode.PREDICT, step=5)
    assert replay.steps[5].sentence not in view.page.content()
    view.click(1.5, 1.2)
    assert view.sentence.endswith("that hole has 3 B, and a tighter one holds it, too.")
    assert "0 of 1" in view.page.locator(".facts").inner_text()
    view.click(1.5, 7)
    assert view.sentence.endswith(f"Yes. {replay.steps[5].sentence}")
    view.page.get_by_role("button", name="next question").click()
    assert view.step == 7
    view.click(1.5, 7)
    assert "there it overlaps f" in view.sentence
    view.page.get_by_role("button", name="show the answer").click()
    assert view.page.locator(".row.taken").count() == 1
    assert view.sentence.endswith(f"there it overlaps f, live at the same time. {replay.steps[6].sentence}")


def test_who_could_only_be_equalled_is_not_shown_by_hand(open_view):
    """Largest first reaches the optimum there: its plan and its bytes would be the answer."""
    view = open_view(make_replay(teaching("no_way_out"), "greedy_by_size"), Mode.EXERCISE)
    assert "greedy" not in view.root.inner_text().lower()
    assert view.sentence == "Complete, with 14 B: 180.0 % over the lower bound of 5 B."
    beaten = open_view(make_replay(teaching("greedy_by_size"), "greedy_by_size"), Mode.EXERCISE)
    assert beaten.page.get_by_role("button", name="start from greedy_by_size").count() == 1


def test_the_search_tree_stands_beside_its_picture(open_view):
    view = open_view(make_replay(teaching("no_way_out"), "exact"), step=61, width=1440, height=900)
    tree, code = (view.page.locator(name).bounding_box() for name in (".tree", ".code"))
    assert tree["x"] + tree["width"] <= code["x"]
    assert tree["y"] + tree["height"] < 750


def test_a_guess_among_shared_objects_is_a_lane(open_view):
    replay = make_replay(teaching("greedy_by_size"), "shared_objects_by_size")
    view = open_view(replay, Mode.PREDICT, step=3)
    view.click(2, 5.5)
    assert view.sentence.endswith("No: object 1 is in use.")
    view.click(2, 10)
    assert f"Yes. {replay.steps[3].sentence}" in view.sentence


def test_a_guess_by_keyboard(open_view):
    view = open_view(make_replay(teaching("best_fit"), "greedy_by_size"), Mode.PREDICT)
    view.page.locator("canvas.picture").focus()
    view.page.keyboard.press("ArrowUp")
    view.page.keyboard.press("Enter")
    assert "Yes. b comes 1st of 8" in view.sentence


GUESSES = """([text, step, offsets]) => {
    const trace = new window.part.Trace(JSON.parse(text));
    return offsets.map((offset) => window.part.judgeGuess(trace, step, offset));
}"""
OBJECTS = """([text, step, numbers]) => {
    const trace = new window.part.Trace(JSON.parse(text));
    return numbers.map((number) => window.part.judgeObject(trace, step, number).agrees);
}"""


@pytest.fixture
def inner(empty_page):
    """A page with the functions of the component."""
    View(empty_page, make_replay(teaching("best_fit"), "greedy_by_size"))
    return empty_page


def test_the_browser_judges_guesses_as_the_engine_does(inner):
    told = set()
    for name, strategy in product(("best_fit", "alignment", "gaps", "no_way_out"), ON_PLACING):
        replay = make_replay(teaching(name), strategy)
        text = trace_json(replay).decode()
        offsets = list(range(replay.plan.arena_bytes + 3))
        for step in replay.steps:
            mine = inner.evaluate(GUESSES, [text, step.number, offsets])
            for offset, judged in zip(offsets, mine, strict=True):
                said = agrees(step, offset)
                given = (judged["agrees"], judged["sentence"], tuple(judged["overlaps"]))
                assert given == (said.agrees, said.sentence, said.overlaps), (name, strategy, offset)
                told.add(said.agreement)
    assert {str(each) for each in told} == JUDGEMENTS


def test_the_browser_knows_which_object_is_right(inner):
    replays = [make_replay(teaching("no_way_out"), strategy) for strategy in SHARING]
    for step in (step for each in replays for step in each.steps):
        numbers = [-1, *range(step.number)]
        mine = inner.evaluate(OBJECTS, [trace_json(step.replay).decode(), step.number, numbers])
        right = step.joined.number if step.joined else -1
        assert mine == [number == right for number in numbers]


# By hand.


JUDGED = """([text, exercise, attempts]) => {
    const trace = new window.part.Trace(JSON.parse(text));
    const attempt = new window.part.Attempt(trace, JSON.parse(exercise));
    return attempts.map((offsets) => {
        attempt.start(offsets);
        const verdict = attempt.judge();
        return [verdict.arena, verdict.conflicts.length, verdict.valid, verdict.beatsGreedy, verdict.optimal,
                verdict.sentence];
    });
}"""


def test_the_browser_judges_placements_as_the_engine_does(inner):
    for name in ("greedy_by_size", "alignment", "gaps"):
        check_placements(inner, teaching(name))


def check_placements(inner, problem):
    exercise = make_exercise(problem)
    rng = np.random.default_rng(11)
    attempts = [exercise.greedy.offsets, exercise.best.offsets]
    for _ in range(60):
        moved = exercise.best.offsets.copy()
        movable = np.flatnonzero(problem.fixed < 0)
        moved[rng.choice(movable)] += rng.integers(0, 5)
        attempts.append(np.where(rng.random(len(moved)) < 0.8, moved, exercise.best.offsets))
    given = [text.tolist() for text in attempts]
    text = trace_json(make_replay(problem, "greedy_by_size")).decode()
    mine = inner.evaluate(JUDGED, [text, json.dumps(exercise_values(exercise, "key")), given])
    for offsets, verdict in zip(given, mine, strict=True):
        said = judge(exercise, offsets)
        expected = [said.arena_bytes, len(said.conflicts), said.valid, said.beats_greedy, said.is_optimal]
        assert verdict == [*expected, said.sentence]
    assert {verdict[2] for verdict in mine} == {True, False}


def test_a_buffer_is_dragged_and_snaps_to_its_neighbour(open_view):
    view = open_view(make_replay(teaching("greedy_by_size"), "greedy_by_size"), Mode.EXERCISE)
    assert view.page.locator(".player").is_hidden()
    arena = view.page.locator(".facts dd").first
    assert arena.inner_text().startswith("14 B")
    box = view.page.locator("canvas.picture").bounding_box()
    left, right, top, bottom = 70, box["width"] - 10, 14, box["height"] - 98

    def at(time, bytes_):
        y = bottom - (bottom - top) * bytes_ / (14 * 1.06)
        return box["x"] + left + (right - left) * time / 6, box["y"] + y

    def drag(time, low, high):
        view.page.mouse.move(*at(time, low))
        view.page.mouse.down()
        view.page.mouse.move(*at(time, high), steps=3)
        view.page.mouse.up()

    # e, on top of all at 10 to 13, down to the bottom.
    drag(5.5, 12, 2.1)
    assert arena.inner_text().startswith("10 B")
    assert "1 B less than greedy_by_size" in view.sentence
    # d into b, where c is, too.
    drag(4.5, 8.5, 6.4)
    assert view.sentence.endswith("share bytes 5 to 6 in step 4.")
    view.page.get_by_role("button", name="undo").click()
    assert "1 B less than greedy_by_size" in view.sentence


# In the dashboard.


def test_in_the_dashboard_keys_step_and_the_url_follows(open_page, dashboard_url):
    tab = open_page(f"{dashboard_url}/replay?doc=example:teaching_best_fit&step=6")
    root = tab.page.locator(".replay-view[data-drawn='6']")
    root.wait_for()
    tab.settle()
    tab.page.keyboard.press("ArrowRight")
    tab.page.locator(".replay-view[data-drawn='7']").wait_for()
    tab.page.wait_for_url("**step=7*")
    tab.settle()
    assert tab.page.locator(".sentence").inner_text().startswith("g comes 7th of 8")
    tab.page.reload()
    tab.page.locator(".replay-view[data-drawn='7']").wait_for()
    assert tab.page.locator(".line.lit").inner_text().startswith("else: b.offset")


def test_the_answer_of_a_lesson_moves_nothing(open_page, dashboard_url):
    place = "doc=example:teaching_first_fit&strategy=first_fit_by_start&step=5&mode=predict"
    tab = open_page(f"{dashboard_url}/replay?{place}&lesson=2", width=1440, height=900)
    picture = tab.page.locator(".replay-view[data-drawn='5'] canvas.picture")
    picture.wait_for()
    tab.settle()
    before = picture.bounding_box()
    assert before["y"] + before["height"] <= 900
    tab.page.get_by_role("button", name="Show the answer").click()
    tab.page.locator(".st-key-lesson_answer").get_by_test_id("stAlert").wait_for()
    tab.settle()
    assert picture.bounding_box() == before


def test_a_buffer_is_found_by_its_name_and_by_a_click(open_view):
    replay = make_replay(load(PATH / "gpt2.json"), "greedy_by_size")
    view = open_view(replay)
    steps = {step.name: step.number + 1 for step in replay.steps}
    assert view.page.locator(".heading .name").inner_text() == "h.0.mlp.c_fc · addmm"
    assert view.sentence.startswith("h.0.mlp.c_fc · addmm comes 1st of 217 by size")
    field = view.page.get_by_label("Find a buffer")
    field.fill("mul_7")
    assert view.step == steps["mul_7"] > 1
    assert view.page.locator(".place").inner_text() == f"decision {view.step} of {len(replay)}"
    field.fill("h.1.mlp.act · tanh")
    assert view.step == next(step.number + 1 for step in replay.steps if step.label == "h.1.mlp.act · tanh")
    sixth = [step.number + 1 for step in replay.steps if step.label.startswith("h.6.attn ·")]
    view.page.keyboard.press("Home")
    field.fill("H.6.attn ·")
    visited = []
    for _ in (*sixth, sixth[0]):
        field.press("Enter")
        visited.append(view.step)
    assert visited == [*sixth, sixth[0]]
    assert view.page.locator(".found").inner_text() == f"1 of {len(sixth)} found"
    field.fill("no such")
    assert view.page.locator(".found").inner_text() == "none found"


def test_a_click_on_a_placed_buffer_goes_to_its_decision(open_view):
    replay = make_replay(teaching("best_fit"), "greedy_by_size")
    view = open_view(replay, step=len(replay) - 1)
    buffer = replay.problem.names.index("f")
    low, size = int(replay.plan.offsets[buffer]), int(replay.problem.size[buffer])
    view.click((replay.problem.start[buffer] + replay.problem.end[buffer]) / 2, low + size / 2)
    assert replay.steps[view.step - 1].name == "f"


def test_playing_reports_only_where_it_stops(timed_page):
    view = View(timed_page, make_replay(load(PATH / "unet_training.csv"), "greedy_by_size"))
    view.page.get_by_label("steps a second").select_option("2")
    view.page.locator("canvas.picture").focus()
    view.page.clock.pause_at(3_600)
    view.page.keyboard.press("Space")
    view.page.clock.run_for(1_500)
    assert view.step == 4
    assert view.page.evaluate("() => window.sent") == []
    view.page.keyboard.press("Space")
    view.page.clock.run_for(1_000)
    assert view.page.evaluate("() => window.sent") == [["step", {"step": 3, "serial": 1}]]


def test_a_right_prediction_is_reported(open_view):
    replay = make_replay(teaching("first_fit"), "first_fit_by_start")
    view = open_view(replay, Mode.PREDICT, step=4)
    view.page.locator("canvas.picture").focus()
    view.page.keyboard.press("ArrowUp")
    view.page.keyboard.press("Enter")
    assert ["answered", {"step": 4, "serial": 1}] in view.page.evaluate("window.sent")
