"""However many buffers are live at once, a limit ends the first plan, and what is quick gives one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from memplan_engine import FREE, PlanError, Problem, SolveLimits, make_plan, make_problem, validate_plan
from memplan_engine.planner import adopt
from memplan_engine.strategies.constructive.linear_scan import LinearScan
from memplan_engine.strategies.constructive.order_fit import place_in_slots, place_online
from tests.support.drawn import problems


def by_start(problem: Problem) -> np.ndarray:
    return np.argsort(problem.start, kind="stable")


def full_of_holes(large: int = 20_000) -> Problem:
    """Return as many holes of 1 byte as buffers of 2 bytes. Each looks at all holes: 4 × 10^8 looks."""
    small = 2 * large
    start = np.arange(small + large)
    ends = np.where(start % 2 == 0, small, small + large)
    size = np.where(start < small, 1, 2)
    return make_problem(start, np.where(start < small, ends, start + 1), size)


def ended() -> SolveLimits:
    limits = SolveLimits()
    limits.cancel()
    return limits


@given(problems())
def test_slots_give_a_valid_placement(problem: Problem) -> None:
    plain = replace(problem, gaps={}, fixed=np.full(len(problem), FREE))
    offsets = place_in_slots(plain, by_start(plain))
    assert offsets is not None
    assert validate_plan(adopt(plain, offsets)).valid


def test_slots_worked_by_hand() -> None:
    # 9 bytes get a slot of 10; the 10 that come then take it, 5 one of 8 that was left, 21 a new one of 24.
    problem = make_problem([0, 0, 1, 1, 1], [1, 1, 2, 2, 2], [9, 8, 10, 5, 21])
    offsets = place_in_slots(problem, by_start(problem))
    assert offsets is not None
    assert offsets.tolist() == [0, 10, 0, 10, 18]


def test_slots_that_pass_what_bytes_can_be_counted_are_none() -> None:
    assert place_in_slots(make_problem([0, 0], [1, 1], [2**61, 2**61]), np.arange(2)) is not None
    assert place_in_slots(make_problem([0], [1], [2**63 - 2**59]), np.arange(1)) is None


def test_a_limit_ends_the_first_plan_and_slots_give_another() -> None:
    problem = full_of_holes()
    assert place_online(problem, by_start(problem), ended()) is None
    # The bound is reported before the first plan, and the limits end there.
    plan = make_plan(problem, "auto", limits=SolveLimits(listener=lambda progress: True))
    assert (dict(plan.parameters)["found_by"], plan.cut_short) == ("slots", True)
    assert plan.arena_bytes == 40_002


def test_a_few_looks_are_made_although_the_limits_have_ended() -> None:
    problem = full_of_holes(1_000)
    offsets = place_online(problem, by_start(problem), ended())
    assert offsets is not None
    assert offsets.tolist() == place_online(problem, by_start(problem), SolveLimits()).tolist()  # type: ignore[union-attr]


def test_a_linear_scan_hears_that_it_is_to_stop() -> None:
    problem = full_of_holes()
    with pytest.raises(PlanError, match="linear_scan was stopped before every buffer had its offset"):
        LinearScan().place(problem, ended())
    few = make_problem([0, 1], [2, 3], [4, 4])
    assert LinearScan().place(few, ended()).offsets.tolist() == [0, 4]
