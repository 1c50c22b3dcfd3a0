"""Predicting where a buffer goes, and placing by hand: what is said is true by plain Python."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import (
    FREE,
    Gap,
    InputError,
    PlanError,
    agrees,
    judge,
    load,
    make_exercise,
    make_problem,
    make_replay,
)
from memplan_engine.replay.by_hand import MOST_BUFFERS, Agreement, Conflict
from memplan_engine.replay.replay_values import UNPLACED
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.constructive.orders import FitRule
from tests import ROOT
from tests.support import drawn, reference

GREEDY_BY_SIZE = get_strategy("greedy_by_size")

FOLDER = ROOT / "example_graphs"


@given(problem=drawn.problems(), fit=st.sampled_from(list(FitRule)), data=st.data())
def test_what_is_said_of_an_offset_is_true(problem, fit, data):
    placed = {}
    for step in make_replay(problem, replace(GREEDY_BY_SIZE, fit=fit)).steps:
        offset = data.draw(st.integers(-1, 40))
        said = agrees(step, offset)
        intervals = reference.forbidden(problem, placed, step.buffer)
        size, alignment = int(problem.size[step.buffer]), int(problem.alignment[step.buffer])
        blocked = any(left < offset < right for left, right in intervals)
        assert said.agrees == (offset == step.offset)
        expected = None
        if offset == step.offset:
            expected = Agreement.AGREES
        elif offset < 0:
            expected = Agreement.NO_OFFSET
        elif problem.fixed[step.buffer] != FREE:
            expected = Agreement.FIXED
        elif offset % alignment:
            expected = Agreement.MISALIGNED
        elif blocked and size:
            expected = Agreement.OVERLAPS
        assert said.agreement is expected or (expected is None and not said.overlaps)
        own = {b: o for b, o in placed.items() if _meets(problem, placed, step.buffer, b, offset)}
        if said.agreement is Agreement.OVERLAPS:
            assert sorted(said.overlaps) == sorted(own)
            assert problem.names[said.overlaps[0]] in said.sentence
        elif said.agreement is Agreement.HIGHER and fit is not FitRule.TOP:
            assert offset > step.offset
            assert step.hole.low <= offset
        assert agrees(step, step.offset).sentence == f"Yes. {step.sentence}"
        # The answer is for who asks for it.
        assert said.agrees or step.sentence not in said.sentence
        assert said.agrees or not re.search("goes to|puts it at", said.sentence)
        placed[step.buffer] = step.offset


def _meets(problem, placed, buffer, other, offset):
    pair = reference.forbidden(problem, {other: placed[other]}, buffer)
    return bool(problem.size[buffer]) and any(left < offset < right for left, right in pair)


def step_of(name, buffer, strategy="greedy_by_size"):
    return next(
        s for s in make_replay(load(FOLDER / f"teaching_{name}.csv"), strategy).steps if s.name == buffer
    )


@pytest.mark.parametrize(
    ("offset", "agreement", "sentence"),
    [
        (
            0,
            Agreement.OTHER_HOLE,
            "It would fit there, but that hole has 3 B, and a tighter one holds it, too.",
        ),
        (1, Agreement.OTHER_HOLE, "that hole has 3 B"),
        (2, Agreement.OVERLAPS, "No: there it overlaps d, live at the same time."),
        (
            10,
            Agreement.OTHER_HOLE,
            "It would fit there, but there is a hole that holds it, too.",
        ),
        (12, Agreement.OTHER_HOLE, "there is a hole that holds it, too."),
        (7, Agreement.OVERLAPS, "No: there it overlaps c, live at the same time."),
    ],
)
def test_best_fit_by_hand(offset, agreement, sentence):
    # f, 2 bytes: holes [0, 3) and [6, 8), d at [3, 6), c at [8, 10).
    said = agrees(step_of("best_fit", "f"), offset)
    assert said.agreement is agreement
    assert sentence in said.sentence


def test_first_fit_alignment_and_higher_by_hand():
    # d, 2 bytes at multiples of 4: holes [0, 4), which a leaves, [7, 8) and above 11.
    step = step_of("alignment", "d", "first_fit_by_start")
    assert agrees(step, 2).sentence == "No: offsets of d are multiples of 4 B; the next one below is 0 B."
    assert agrees(step, 12).sentence == "It would fit there, but there is a hole that holds it, too."
    f = make_replay(load(FOLDER / "teaching_best_fit.csv"), replace(GREEDY_BY_SIZE, fit=FitRule.FIRST)).steps[
        5
    ]
    assert agrees(f, 6).sentence == "It would fit there, but that is not the lowest hole that holds it."
    roomy = make_problem([0, 0, 0], [2, 1, 2], [4, 8, 1], names=["a", "b", "c"], fixed=[8, FREE, FREE])
    step = make_replay(roomy, "greedy_by_lifetime").steps[1]
    assert (step.name, agrees(step, 3).agreement) == ("c", Agreement.HIGHER)
    assert agrees(step, 3).sentence == "The right hole, but 3 B higher than needed."


def test_other_families_say_why_not():
    scan = make_replay(make_problem([0, 1], [9, 2], [3, 2], names=["a", "b"]), "linear_scan").steps[1]
    assert agrees(scan, 0).agrees
    assert "a scan takes the smallest free range that holds it" in agrees(scan, 5).sentence
    stack = make_replay(make_problem([0, 1], [1, 2], [3, 2]), "naive").steps[1]
    assert agrees(stack, 0).sentence.endswith("but without reuse it goes behind all others.")
    shared = make_replay(make_problem([0, 1, 2], [2, 2, 4], [4, 3, 6], names=list("abc")), "partition")
    b = shared.steps[2]
    assert (b.name, b.object) == ("b", 1)
    assert agrees(b, 7).agrees
    assert agrees(b, 1).sentence == "No: object 0 is in use."
    assert agrees(b, 50).sentence == "No: no object is there."
    assert agrees(b, 2**63).agreement is Agreement.NO_OFFSET
    top = make_replay(
        make_problem([0, 0, 0], [1, 2, 1], [4, 4, 1], fixed=[4, FREE, FREE]),
        replace(GREEDY_BY_SIZE, fit=FitRule.TOP),
    )
    assert "this rule leaves holes empty" in agrees(top.steps[1], 0).sentence


@given(problem=drawn.problems(), data=st.data())
def test_an_attempt_is_judged_as_plain_python_judges_it(problem, data):
    exercise = greedy_exercise(problem)
    offsets = [data.draw(st.integers(UNPLACED, 30)) for _ in range(len(problem))]
    attempt = judge(exercise, offsets)
    placed = {b: o for b, o in enumerate(offsets) if o != UNPLACED}
    # Those without a place are far from all others.
    apart = [o if o >= 0 else 10**6 * (b + 1) for b, o in enumerate(offsets)]
    collisions = reference.overlaps(problem, apart)
    assert {(each.one, each.other) for each in attempt.conflicts} == set(collisions)
    for each in attempt.conflicts:
        assert each.low < each.high
        for step in range(each.start, each.end):
            spans = [reference.held(problem, b, step) for b in (each.one, each.other)]
            lows = [offsets[b] + span[0] for b, span in zip((each.one, each.other), spans, strict=True)]
            highs = [offsets[b] + span[1] for b, span in zip((each.one, each.other), spans, strict=True)]
            assert (each.low, each.high) == (max(lows), min(highs))
    assert attempt.misaligned == tuple(b for b, o in placed.items() if o % problem.alignment[b])
    assert attempt.displaced == tuple(b for b, o in placed.items() if problem.fixed[b] not in (FREE, o))
    assert attempt.arena_bytes == max((o + int(problem.size[b]) for b, o in placed.items()), default=0)
    assert attempt.bytes_left == sum(int(problem.size[b]) for b in range(len(problem)) if b not in placed)
    assert attempt.valid == (not collisions and not attempt.misaligned and not attempt.displaced)
    assert attempt.complete == (attempt.valid and len(placed) == len(problem))
    assert attempt.gap_bytes == attempt.arena_bytes - exercise.bound_bytes
    if attempt.complete:
        reference.assert_sound(problem, offsets)


def greedy_exercise(problem):
    """Measured against a greedy plan alone: a search for each drawn problem would take its time."""
    from memplan_engine.planner import make_plan
    from memplan_engine.replay.by_hand import Exercise

    greedy = make_plan(problem, "greedy_by_size")
    return Exercise(problem, greedy, greedy)


def test_an_exercise_by_hand():
    # Largest first needs 11 bytes, 7 are enough: a at 0, c at 2, b and d at 4, e at 0.
    exercise = make_exercise(load(FOLDER / "teaching_greedy_by_size.csv"))
    assert (exercise.greedy.arena_bytes, exercise.bound_bytes, exercise.optimum_bytes) == (11, 7, 7)
    assert exercise.rival is exercise.greedy
    start = judge(exercise, {})
    assert (start.placed, start.arena_bytes, start.bytes_left, start.valid) == (0, 0, 14, True)
    assert start.sentence == "5 to go. The arena has 0 B; no placement needs less than 7 B."
    clash = judge(exercise, {"a": 0, "c": 1})
    assert clash.conflicts == (Conflict(0, 2, 2, 5, 1, 2),)
    assert clash.sentence == "a and c share byte 1 in steps 2–4."
    assert judge(exercise, {"a": 0, "c": 0}).sentence == "a and c share bytes 0 to 1 in steps 2–4."
    assert not clash.valid
    greedy = judge(exercise, exercise.greedy.offsets)
    assert (greedy.complete, greedy.beats_greedy, greedy.is_optimal) == (True, False, False)
    assert greedy.sentence == (
        "Complete, with 11 B: as much as greedy_by_size, and 57.1 % over the lower bound of 7 B."
    )
    good = judge(exercise, {"a": 0, "c": 2, "b": 4, "d": 5, "e": 0})
    assert (good.beats_greedy, good.is_optimal) == (True, False)
    assert good.sentence == (
        "Complete, with 8 B: 3 B less than greedy_by_size, and 14.3 % over the lower bound of 7 B."
    )
    best = judge(exercise, {"a": 0, "c": 2, "b": 4, "d": 4, "e": 0})
    assert (best.arena_bytes, best.gap_bytes, best.gap, best.is_optimal) == (7, 0, 0.0, True)
    assert best.sentence == "Complete, with 7 B: that is the optimum."


def test_what_a_search_has_proved_is_not_given_away():
    # No step has more than 5 bytes, and yet 5 are not enough: that is for the reader to find out.
    # Largest first reaches the 6, so it is no rival that anybody could beat.
    exercise = make_exercise(load(FOLDER / "teaching_no_way_out.csv"))
    assert exercise.greedy.arena_bytes == 6
    assert exercise.rival is None
    assert (exercise.bound_bytes, exercise.optimum_bytes, exercise.best.bound.nbytes) == (5, 6, 6)
    stacked = np.cumsum(exercise.problem.size) - exercise.problem.size
    assert judge(exercise, stacked).sentence == "Complete, with 14 B: 180.0 % over the lower bound of 5 B."
    assert judge(exercise, exercise.best.offsets).is_optimal


def test_alignment_and_fixed_offsets_of_an_exercise():
    problem = make_problem([0, 0], [1, 1], [4, 4], names=["a", "b"], alignment=[4, 1], fixed=[FREE, 8])
    exercise = make_exercise(problem)
    assert judge(exercise, {"a": 2}).sentence == "a must begin at a multiple of 4 B."
    assert judge(exercise, {"b": 0}).sentence == "b is fixed at 8 B."
    gap = make_problem([0, 1], [3, 2], [4, 2], gaps={0: (Gap(1, 2, 0, 2),)})
    assert judge(make_exercise(gap), [0, 2]).is_optimal
    assert judge(make_exercise(gap), [0, 1]).conflicts == (Conflict(0, 1, 1, 2, 1, 2),)


def test_bad_attempts_and_exercises_say_what_is_wrong():
    exercise = make_exercise(make_problem([0], [1], [4], names=["a"]))
    for offsets in ({"x": 0}, [0, 0], [-2], [2**63 - 2], {"a": 2**70}, ["high"]):
        with pytest.raises(InputError):
            judge(exercise, offsets)
    many = range(MOST_BUFFERS + 1)
    with pytest.raises(PlanError, match="501 buffers, and an exercise has 500 at most"):
        make_exercise(make_problem(many, [n + 1 for n in many], many))
