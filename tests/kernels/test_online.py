"""First fit by start with kept holes gives the offsets that first fit gives by its definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from memplan_engine import FREE, Problem, SolveLimits, make_plan, make_problem
from memplan_engine.kernels.constructive import online
from memplan_engine.kernels.constructive.online import UNPLACED, first_fit_by_start
from memplan_engine.kernels.jit import Kernel
from tests.support import reference
from tests.support.drawn import problems

NO_LIMIT = 2**63 - 1
NEVER = np.zeros(1, dtype=np.bool_)


def placed(problem: Problem, limit: int = NO_LIMIT) -> list[int]:
    columns = (np.argsort(problem.start, kind="stable"), problem.start, problem.end, problem.size)
    return first_fit_by_start(*map(np.array, columns), np.array(problem.alignment), limit, NEVER).tolist()  # type: ignore[call-arg]


@given(problems())
def test_same_offsets_as_the_definition(problem: Problem) -> None:
    plain = replace(problem, gaps={}, fixed=np.full(len(problem), FREE))
    order = np.argsort(plain.start, kind="stable").tolist()
    assert placed(plain) == reference.place(plain, order, "first")


def test_worked_by_hand() -> None:
    # a and b leave a hole of 12 bytes below c: d and e fill 11 of them.
    problem = make_problem([0, 0, 0, 2, 2], [2, 2, 5, 4, 4], [8, 4, 4, 6, 5])
    assert placed(problem) == [0, 8, 12, 0, 6]


@pytest.mark.parametrize(
    ("limit", "expected"), [(16, [0, 8, 12]), (15, [0, 8, UNPLACED]), (7, [UNPLACED] * 3)]
)
def test_gives_up_at_the_limit(limit: int, expected: list[int]) -> None:
    assert placed(make_problem([0, 0, 0], [1, 1, 1], [8, 4, 4]), limit) == expected


def test_auto_has_it_although_the_limits_end_before_it_begins() -> None:
    random = np.random.default_rng(3)
    n = 20_000
    start = random.integers(0, n, n)
    problem = make_problem(start, start + random.integers(1, 400, n), random.integers(1, 10**6, n))
    # The bound is reported before the first plan.
    plan = make_plan(problem, "auto", limits=SolveLimits(listener=lambda progress: True))
    assert dict(plan.parameters)["found_by"] in ("start × first fit", "linear scan")
    assert plan.gap < 0.2


def test_the_flag_counts_once_enough_holes_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    # One hole for each of the first three, and the flag is read from the third hole on.
    monkeypatch.setattr(online, "PATIENCE", 2)
    problem = make_problem([0, 0, 0, 0], [1, 1, 1, 1], [8, 4, 4, 2])
    columns = (np.arange(4), problem.start, problem.end, problem.size)
    for raised, expected in ((False, [0, 8, 12, 16]), (True, [0, 8, UNPLACED, UNPLACED])):
        flag = np.array([raised])
        interpreted = Kernel(first_fit_by_start.function).interpreted
        offsets = interpreted(*map(np.array, columns), np.array(problem.alignment), NO_LIMIT, flag)
        assert offsets.tolist() == expected
