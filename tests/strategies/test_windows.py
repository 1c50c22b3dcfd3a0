"""Windows packed exactly: a buffer without a place gets one when its neighbours may move."""

import numpy as np

from memplan_engine import make_plan, make_problem, validate_plan
from memplan_engine.kernels.search.repair import UNPLACED
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.orders import make_timeline
from memplan_engine.strategies.search.moves import make_ejection_search, pack_windows


def _ejection(problem, offsets, ceiling):
    ejection = make_ejection_search(make_timeline(problem))
    ejection.begin(np.array(offsets), ceiling, 0.75, 0.75)
    return ejection


def test_a_neighbour_moves_aside():
    # 2 bytes float at 1 below a ceiling of 4: neither hole holds the other 2.
    problem = make_problem([0, 0, 9], [4, 4, 10], [2, 2, 4])
    ejection = _ejection(problem, [1, 9, 0], 4)
    assert ejection.offsets.tolist() == [1, UNPLACED, 0]
    found = pack_windows(problem, ejection, 4, 0, SolveLimits())
    assert sorted(found[:2].tolist()) == [0, 2]
    assert found[2] == 0


def test_one_is_helped_and_another_stays_out():
    problem = make_problem([0, 0, 0], [4, 4, 4], [2, 2, 3])
    found = pack_windows(problem, _ejection(problem, [1, 9, 20], 4), 4, 0, SolveLimits())
    assert (found == UNPLACED).sum() == 1
    assert (found + problem.size <= 4)[found >= 0].all()


def test_search_never_takes_what_is_not_complete_for_a_plan():
    random = np.random.default_rng(5)
    start = random.integers(0, 60, 300)
    problem = make_problem(start, start + random.integers(1, 40, 300), random.integers(1, 50, 300))
    assert validate_plan(make_plan(problem, "search", limits=SolveLimits(nodes=20_000))).valid


def test_what_is_fixed_stays():
    problem = make_problem([0, 0], [4, 4], [2, 2], fixed=[1, -1])
    assert pack_windows(problem, _ejection(problem, [1, 9], 4), 4, 0, SolveLimits()) is None


def test_nothing_to_do_and_no_time():
    problem = make_problem([0, 0], [4, 4], [2, 2])
    assert pack_windows(problem, _ejection(problem, [0, 2], 4), 4, 0, SolveLimits()) is None
    spent = SolveLimits()
    spent.cancel()
    assert pack_windows(problem, _ejection(problem, [1, 9], 4), 4, 0, spent) is None


def test_alignment_and_gaps_are_kept():
    problem = make_problem([0, 0, 0], [4, 4, 4], [2, 4, 2], alignment=[2, 4, 2])
    # 4 bytes aligned to 4 do not fit beside 2 at 2 and 2 at 4 below 8.
    found = pack_windows(problem, _ejection(problem, [2, 16, 4], 8), 8, 0, SolveLimits())
    assert found[1] % 4 == 0
    assert sorted((int(low), int(low + size)) for low, size in zip(found, problem.size, strict=True)) in (
        [(0, 4), (4, 6), (6, 8)],
        [(0, 2), (2, 4), (4, 8)],
    )
