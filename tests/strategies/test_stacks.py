"""Stacks of buffers that meet in pairs: the bound against brute force, its proof, its replay."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given

from memplan_engine.bounds import Bound, BoundKind, lower_bound
from memplan_engine.feasibility.decision import decide
from memplan_engine.planner import make_plan
from memplan_engine.problem import Gap, make_problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.exact import exact_search
from memplan_engine.strategies.exact.exact_search import heaviest_stack, is_stack
from memplan_engine.strategies.exact.independent_parts import make_columns
from memplan_engine.verdict import Verdict
from memplan_engine.verify.certificates import Outcome, replay
from memplan_engine.verify.validate import validate_plan
from tests.support import drawn

# Any two meet at one of three steps, where the third is in a gap: 12 bytes, though no step holds more than 9.
TRIANGLE = make_problem(
    start=[0, 0, 0],
    end=[3, 3, 3],
    size=[3, 4, 5],
    gaps={0: (Gap(0, 1),), 1: (Gap(1, 2),), 2: (Gap(2, 3),)},
)


def whole_at(problem, buffer):
    """The steps at which `buffer` holds all its bytes."""
    steps = set(range(int(problem.start[buffer]), int(problem.end[buffer])))
    for gap in problem.gaps.get(buffer, ()):
        if gap.high - gap.low < problem.size[buffer]:
            steps -= set(range(gap.start, gap.end))
    return steps


def heaviest_by_trying_all(problem):
    whole = [whole_at(problem, b) for b in range(len(problem))]
    best = 0
    for count in range(len(problem) + 1):
        for some in combinations(range(len(problem)), count):
            if all(whole[one] & whole[other] for one, other in combinations(some, 2)):
                best = max(best, int(problem.size[list(some)].sum()))
    return best


@given(problem=drawn.problems(least=1, fixed=False))
def test_the_heaviest_of_all(problem):
    found = heaviest_stack(problem, 0)
    # A buffer that is whole at no step bounds nothing but by its size, which is another bound's business.
    most = heaviest_by_trying_all(problem) if problem.gaps else 0
    assert (found.nbytes if found else 0) == most
    if found:
        assert is_stack(problem, np.array(found.core), found.nbytes)
        assert replay(problem, found).outcome is Outcome.PROVED


def test_a_triangle_is_proved_at_once_and_replayed():
    assert lower_bound(TRIANGLE).nbytes == 9
    bound = heaviest_stack(TRIANGLE, 9)
    assert bound == Bound(12, BoundKind.CORE, 0, core=(0, 1, 2), until=3)
    assert heaviest_stack(TRIANGLE, 12) is None
    for strategy in ("auto", "exact"):
        plan = make_plan(TRIANGLE, strategy, limits=SolveLimits())
        assert (plan.arena_bytes, plan.bound) == (12, bound)
        assert plan.optimal
        assert not plan.nodes
    assert validate_plan(plan).replayed == "3 buffers cannot be placed below 12 bytes (0 nodes)"
    assert decide(TRIANGLE, 11).verdict is Verdict.DOES_NOT_FIT


def test_one_pair_that_does_not_meet_is_no_stack():
    gaps = dict(TRIANGLE.gaps) | {1: (Gap(1, 3),)}
    apart = make_problem(TRIANGLE.start, TRIANGLE.end, TRIANGLE.size, gaps=gaps)
    assert not is_stack(apart, np.arange(3), 12)
    assert is_stack(TRIANGLE, np.arange(3), 12)
    assert not is_stack(TRIANGLE, np.arange(3), 13)
    claimed = Bound(12, BoundKind.CORE, 0, core=(0, 1, 2), until=3)
    assert replay(apart, claimed).outcome is Outcome.REFUTED


def test_bytes_that_a_gap_leaves_out_are_not_counted():
    half = {b: tuple(Gap(g.start, g.end, 0, 1) for g in own) for b, own in TRIANGLE.gaps.items()}
    assert heaviest_stack(make_problem([0] * 3, [3] * 3, [3, 4, 5], gaps=half), 0).nbytes == 12
    partly = {0: (Gap(0, 3, 0, 1),)}
    found = heaviest_stack(make_problem([0] * 3, [3] * 3, [3, 4, 5], gaps=partly), 0)
    assert (found.nbytes, found.core) == (9, (1, 2))


def test_a_stack_is_not_shrunk_by_search(monkeypatch):
    monkeypatch.setattr(exact_search, "is_refuted", lambda *_: 1 / 0)
    bound = heaviest_stack(TRIANGLE, 9)
    assert exact_search.shrink_core(TRIANGLE, bound, SolveLimits()) == bound


def test_large_parts_and_long_searches_are_left_alone(monkeypatch):
    monkeypatch.setattr(exact_search, "MOST_BUFFERS", 2)
    assert heaviest_stack(TRIANGLE, 9) is None
    monkeypatch.setattr(exact_search, "MOST_BUFFERS", 400)
    monkeypatch.setattr(exact_search, "MOST_NODES", 1)
    assert heaviest_stack(TRIANGLE, 9) is None


def test_neighbours_have_one_layout_however_few_they_are():
    # One compiled kernel for all: a second takes as long to compile as a whole search.
    for count in (1, 2, 5):
        part = make_columns(make_problem([0] * count, [1] * count, [1] * count)).part
        assert part.near.flags.c_contiguous
        assert part.near.flags.writeable
