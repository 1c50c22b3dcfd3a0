"""Strategy `exact` as a whole: the optimum with a proof, known optima, limits, threads and parts."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.families import adversarial, perfect
from memplan_engine.bounds import BoundKind, contributors, lower_bound
from memplan_engine.planner import make_plan
from memplan_engine.problem import FREE, Gap, make_problem, select
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import Placement, Progress, SolveLimits
from memplan_engine.strategies.constructive.linear_scan import Naive
from memplan_engine.strategies.constructive.order_fit import place_by_portfolio
from memplan_engine.strategies.exact.exact_search import Exact, is_refuted, shrink_core
from memplan_engine.strategies.exact.race import EARLY_ATTEMPTS, RUNG, TARGET_SHARE, Race
from memplan_engine.verify.certificates import Outcome, replay
from memplan_engine.verify.validate import validate_plan
from tests.support import drawn, reference, tight
from tests.support.manual_clock import cancelled_at_first_placement
from tests.support.waiting import HANG_SECONDS


def has_windows(problem):
    return any(gap.low < gap.high for gaps in problem.gaps.values() for gap in gaps)


def solve(problem, limits=None, strategy=None):
    """A plan by `exact`. Where gaps have windows it need not come to an end by itself."""
    limit = 0.05 if has_windows(problem) else None
    return make_plan(problem, strategy or Exact(), limits=limits or SolveLimits(limit))


def check_core(problem, bound):
    """The buffers of a core alone do not fit below the bound."""
    assert bound.kind is BoundKind.CORE
    assert contributors(problem, bound).tolist() == sorted(bound.core, key=lambda b: -problem.size[b])
    assert not reference.fits(select(problem, np.array(bound.core)), bound.nbytes - 1)


def check_optimum(problem):
    before = problem.fingerprint
    plan, optimum = solve(problem), reference.least_arena(problem)
    reference.assert_sound(problem, plan.offsets.tolist())
    assert plan.bound.nbytes <= optimum <= plan.arena_bytes
    if not has_windows(problem):
        assert plan.bound.nbytes == optimum == plan.arena_bytes
        assert plan.optimal
        assert not plan.cut_short
    if plan.bound.kind is BoundKind.CORE:
        check_core(problem, plan.bound)
    assert problem.fingerprint == before
    return plan


@pytest.mark.parametrize("kind", tight.EXACT, ids=lambda kind: kind.__name__)
def test_the_arena_is_the_optimum_and_proved(kind):
    for problem in tight.many(kind, 40, seed=7):
        check_optimum(problem)


@pytest.mark.parametrize("kind", tight.EXACT, ids=lambda kind: kind.__name__)
def test_from_no_reuse_it_is_search_alone_that_finds_the_optimum(kind):
    cores = 0
    for problem in tight.many(kind, 40, seed=8):
        stacked = Naive().place(problem, SolveLimits())
        race = Race(problem, stacked, lower_bound(problem), seed=1)
        race.run(SolveLimits())
        reference.assert_sound(problem, race.best.offsets.tolist())
        assert race.settled
        assert race.best.arena_bytes(problem) == race.bound.nbytes == reference.least_arena(problem)
        cores += race.bound.kind is BoundKind.CORE
    assert cores >= (3 if kind in (tight.no_way_out, tight.aligned, tight.fixed) else 0)


@given(problem=drawn.problems(most=7, steps=5, largest=5, alignments=st.sampled_from([1, 1, 2, 3])))
def test_whatever_a_problem_has(problem):
    check_optimum(problem)


@given(
    problem=drawn.problems(
        most=8, steps=6, largest=6, gaps=False, alignments=st.sampled_from([1, 1, 1, 2, 64])
    )
)
def test_alignments_zero_sizes_and_fixed_offsets(problem):
    plan = solve(problem)
    assert plan.bound.nbytes == plan.arena_bytes
    reference.assert_sound(problem, plan.offsets.tolist())
    if problem.alignment.max(initial=1) < 64:
        assert plan.arena_bytes == reference.least_arena(problem)


@pytest.mark.parametrize("place", range(12))
def test_gaps_with_windows_are_valid_and_bounded(place):
    check_optimum(tight.many(tight.windows, 12, seed=3)[place])


def test_windows_are_packed_where_that_meets_the_bound():
    # By size, 1 goes under 0 where both are live; only above it is there room for 2 in 0's window.
    problem = make_problem([0, 2, 1], [4, 4, 2], [6, 4, 4], gaps={0: (Gap(1, 2, 0, 2),)})
    plan = check_optimum(problem)
    assert plan.arena_bytes == 10 == plan.bound.nbytes


def test_no_buffers_and_one_buffer():
    assert solve(make_problem([], [], [])).optimal
    assert solve(make_problem([0], [5], [0])).arena_bytes == 0
    plan = solve(make_problem([3], [4], [10], alignment=64))
    assert (plan.offsets.tolist(), plan.bound.nbytes, plan.nodes, plan.threads) == ([0], 10, 0, 1)


def test_no_way_out_by_hand():
    """LOAD is 5. The nine need 6, and so do eight of them: not the one that is live at step 2 alone."""
    problem = make_problem(*tight.NO_WAY_OUT.T)
    plan = check_optimum(problem)
    assert plan.arena_bytes == 6
    assert plan.bound.core == (0, 1, 2, 3, 4, 6, 7, 8)
    assert (plan.bound.step, plan.bound.until) == (0, 5)
    assert dict(plan.parameters)["capacity"] is None
    assert plan.nodes > 0


def test_units_are_bytes_again():
    problem = make_problem(*(tight.NO_WAY_OUT * (1, 1, 4096)).T, alignment=256)
    plan = solve(problem)
    assert (plan.arena_bytes, plan.bound.nbytes, plan.bound.kind) == (6 * 4096, 6 * 4096, BoundKind.CORE)


def test_a_core_leaves_out_what_is_not_needed():
    beside = np.array([(0, 2, 1), (3, 5, 1), (6, 9, 4), (7, 9, 1)])
    rows = np.concatenate([beside[:1], tight.NO_WAY_OUT * (1, 1, 2), beside[1:]])
    problem = make_problem(*rows.T)
    bound = solve(problem).bound
    assert bound.nbytes == 12 == reference.least_arena(problem)
    check_core(problem, bound)
    assert len(bound.core) < len(problem)
    for left_out in bound.core:
        fewer = np.array([b for b in bound.core if b != left_out])
        assert not is_refuted(problem, fewer, bound.nbytes - 1, SolveLimits())


def test_a_core_is_not_made_smaller_when_there_is_no_time():
    problem = adversarial.no_way_out(2).problem
    first = place_by_portfolio(problem, SolveLimits(), 0)
    race = Race(problem, first, lower_bound(problem))
    race.run(SolveLimits())
    assert len(race.bound.core) == len(problem)
    assert shrink_core(problem, race.bound, SolveLimits(nodes=0)).core == race.bound.core
    assert len(shrink_core(problem, race.bound, SolveLimits(nodes=50_000)).core) == 9


def test_only_cores_are_made_smaller():
    problem = make_problem([0, 0], [1, 1], [1, 2])
    bound = lower_bound(problem)
    assert shrink_core(problem, bound, SolveLimits()) is bound


@pytest.mark.parametrize("count", [60, 80, 100])
@pytest.mark.parametrize("seed", range(4))
def test_guillotine_cuts_are_packed_without_any_waste(count, seed):
    made = perfect.guillotine(count, seed)
    plan = make_plan(made.problem, "exact", limits=SolveLimits())
    assert plan.arena_bytes == plan.bound.nbytes == made.optimum
    assert plan.bound.kind is BoundKind.LOAD


@pytest.mark.parametrize("make", [perfect.pinwheel, lambda n, s: perfect.guillotine(n, s, even=True)])
def test_other_perfect_packings(make):
    for seed in range(3):
        made = make(61, seed)
        plan = make_plan(made.problem, "exact", limits=SolveLimits())
        assert plan.arena_bytes == plan.bound.nbytes == made.optimum


@pytest.mark.parametrize("copies", [1, 2, 3, 5])
def test_what_load_does_not_show_is_proved_with_nine_buffers(copies):
    made = adversarial.no_way_out(copies)
    plan = make_plan(made.problem, "exact", limits=SolveLimits())
    assert plan.arena_bytes == plan.bound.nbytes == made.optimum
    assert plan.bound.nbytes > 1.19 * made.lower_bound
    assert len(plan.bound.core) <= 10
    assert replay(made.problem, plan.bound).outcome is Outcome.PROVED


@pytest.mark.parametrize(
    "made",
    [
        adversarial.path(6),
        adversarial.caterpillar(6),
        adversarial.path(3, 3),
        adversarial.caterpillar(2, 3),
        adversarial.fragmenting(3),
        adversarial.in_turn(adversarial.path(3), adversarial.caterpillar(3)),
    ],
    ids=lambda made: made.name,
)
def test_where_rules_of_thumb_fail(made):
    plan = make_plan(made.problem, "exact", limits=SolveLimits())
    assert plan.arena_bytes == plan.bound.nbytes == made.optimum


HARD = tight.crowded(np.random.default_rng(1), 150, 200, 50)
"""Neither packed nor refuted in minutes."""


def test_a_limit_keeps_the_best():
    reports: list[Progress] = []
    plan = make_plan(HARD, "exact", limits=SolveLimits(nodes=30_000, listener=reports.append))
    assert plan.cut_short
    assert reports[-1].arena_bytes == plan.arena_bytes
    assert reports[-1].bound_bytes == plan.bound.nbytes < plan.arena_bytes
    assert validate_plan(plan, replay=False).valid
    arenas = [report.arena_bytes for report in reports if report.arena_bytes is not None]
    bounds = [report.bound_bytes for report in reports if report.bound_bytes is not None]
    assert all(one >= other for one, other in pairwise(arenas))
    assert all(one <= other for one, other in pairwise(bounds))
    assert plan.arena_bytes < place_by_portfolio(HARD, SolveLimits(), 0).arena_bytes(HARD)


def test_cancelling_from_another_thread_ends_it():
    limits = SolveLimits()
    with cancelled_at_first_placement(limits):
        plan = make_plan(HARD, "exact", limits=limits)
    assert plan.cut_short
    assert validate_plan(plan, replay=False).valid


def test_a_budget_spent_before_it_begins_gives_no_reuse():
    limits = SolveLimits()
    limits.cancel()
    plan = make_plan(HARD, "exact", limits=limits)
    assert plan.arena_bytes == plan.naive_bytes
    assert plan.nodes == 0


def test_one_seed_and_one_thread_give_the_same_every_time():
    problem = tight.crowded(np.random.default_rng(2), 40, 40, 12)
    plans = [make_plan(problem, "exact", limits=SolveLimits(seed=5)) for _ in "12"]
    assert plans[0].offsets.tolist() == plans[1].offsets.tolist()
    assert plans[0].bound.nbytes == plans[1].bound.nbytes
    # The nodes are those of the race alone where no core is made smaller.
    assert plans[0].nodes == plans[1].nodes > 0


def test_two_at_once_in_threads_find_what_each_finds_alone():
    problems = [perfect.guillotine(100, seed).problem for seed in (0, 2)]
    found: dict[int, list[int]] = {}

    def work(place):
        found[place] = make_plan(problems[place], "exact", limits=SolveLimits()).offsets.tolist()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    alone = [make_plan(problem, "exact", limits=SolveLimits()).offsets.tolist() for problem in problems]
    assert [found[0], found[1]] == alone


@pytest.mark.parametrize("kind", [tight.no_way_out, tight.crowded, tight.fixed, tight.gaps])
def test_two_threads_find_the_same_arena(kind):
    for problem in tight.many(kind, 20, seed=5):
        plan = solve(problem, SolveLimits(threads=2))
        reference.assert_sound(problem, plan.offsets.tolist())
        assert plan.arena_bytes == plan.bound.nbytes == reference.least_arena(problem)


def test_threads_are_told_where_they_were_used():
    made = adversarial.no_way_out(3)
    assert make_plan(made.problem, "exact", limits=SolveLimits(threads=2)).threads == 2
    assert make_plan(made.problem, "exact", limits=SolveLimits(threads=1)).threads == 1
    easy = make_problem([0], [1], [1])
    assert make_plan(easy, "exact", limits=SolveLimits(threads=2)).threads == 1


def in_sequence(*problems):
    """One after the other in time: independent."""
    columns, clock = [], 0
    for problem in problems:
        columns.append(np.stack([problem.start + clock, problem.end + clock, problem.size]))
        clock += int(problem.end.max())
    return make_problem(*np.concatenate(columns, axis=1))


def test_independent_parts_are_solved_one_by_one():
    """Each takes as many nodes as it takes alone."""
    made = [perfect.guillotine(80, seed, units=4096) for seed in range(10)]
    problem = in_sequence(*(each.problem for each in made))
    first = place_by_portfolio(problem, SolveLimits(), made[0].optimum)
    race = Race(problem, first, lower_bound(problem))
    assert len(race.parts) >= 5
    assert max(len(part.rows) for part in race.parts) <= 80
    plan = make_plan(problem, "exact", limits=SolveLimits())
    assert plan.arena_bytes == plan.bound.nbytes == made[0].optimum
    alone = [make_plan(each.problem, "exact", limits=SolveLimits()).nodes for each in made]
    assert plan.nodes <= 2 * sum(alone) + 1000


def test_a_part_below_the_bound_of_another_is_left_alone():
    rows = tight.NO_WAY_OUT
    high = make_problem([0], [1], [9])
    problem = in_sequence(make_problem(*rows.T), high)
    plan = solve(problem)
    assert (plan.arena_bytes, plan.bound.kind, plan.nodes) == (9, BoundKind.LOAD, 0)
    # Two that have no way out: both are refuted or packed, and one core is enough.
    twice = in_sequence(make_problem(*rows.T), make_problem(*rows.T))
    plan = solve(twice)
    assert (plan.arena_bytes, plan.bound.nbytes, len(plan.bound.core)) == (6, 6, 8)


def test_a_race_takes_over_the_better_parts_of_another_placement():
    rows = tight.NO_WAY_OUT
    problem = in_sequence(make_problem(*rows.T), make_problem(*rows.T))
    stacked = np.concatenate([[0], np.cumsum(problem.size)[:-1]])
    race = Race(problem, Placement(stacked, "stack"), lower_bound(problem))
    assert len(race.parts) == 2
    optimal = solve(problem).offsets
    half = np.where(np.arange(18) < 9, optimal, stacked + 1000)
    race.adopt(Placement(half, "theirs"))
    assert race.best.offsets.tolist() == [*optimal[:9], *stacked[9:]]
    race.adopt(Placement(stacked + 5, "worse"))
    assert race.best.offsets.tolist() == [*optimal[:9], *stacked[9:]]


def test_attempts_far_above_the_target_go_down_a_ladder_of_capacities():
    problem = perfect.guillotine(60, 1).problem
    race = Race(problem, Naive().place(problem, SolveLimits()), lower_bound(problem), seed=3)
    room = race._tops[0] - race.target
    late = range(EARLY_ATTEMPTS, EARLY_ATTEMPTS + 4000)
    heights = np.array([race._height(0, turn, room) for turn in late])
    assert np.mean(heights == 0) == pytest.approx(TARGET_SHARE, abs=0.03)
    rungs = np.log(heights[heights > 0]) / np.log(RUNG)
    assert np.allclose(rungs, np.round(rungs))
    counts = np.bincount(np.round(rungs).astype(int))
    assert counts[:3] / counts.sum() == pytest.approx([0.5, 0.25, 0.125], abs=0.04)
    # Each looks below the best arena, wherever that has come to.
    lower = [race._height(0, turn, room // 3) for turn in late]
    assert 0 <= min(lower) <= max(lower) <= 1
    # Near the target, and in the beginning, half of the attempts look at the target.
    for space, turns in ((int(0.03 * race.target), late), (room, range(EARLY_ATTEMPTS))):
        found = np.array([race._height(0, turn, space) for turn in turns])
        assert np.mean(found == 0) == pytest.approx(0.5, abs=0.1)


def test_a_capacity_ends_it_as_soon_as_it_is_settled():
    problem = make_problem(*tight.NO_WAY_OUT.T)
    fits = solve(problem, strategy=Exact(capacity=7))
    assert fits.arena_bytes <= 7
    assert fits.bound.nbytes == 5
    refused = solve(problem, strategy=Exact(capacity=5))
    assert refused.bound.nbytes == 6
    assert refused.bound.kind is BoundKind.CORE
    assert dict(refused.parameters)["capacity"] == 5


def test_parts_that_are_too_large_keep_their_first_placement(monkeypatch):
    monkeypatch.setattr("memplan_engine.strategies.exact.race.MOST_BUFFERS", 8)
    problem = make_problem(*tight.NO_WAY_OUT.T)
    plan = solve(problem)
    assert (plan.nodes, plan.bound.nbytes, plan.threads) == (0, 5, 1)
    assert plan.arena_bytes >= 6


def test_it_is_never_worse_than_the_portfolio():
    for problem in tight.many(tight.crowded, 10, seed=9):
        limits = SolveLimits()
        assert solve(problem).arena_bytes <= place_by_portfolio(problem, limits, 0).arena_bytes(problem)


def test_it_is_known_by_name_and_says_what_found_the_plan():
    assert isinstance(get_strategy("exact"), Exact)
    made = perfect.guillotine(100, 0)
    plan = make_plan(made.problem, "exact", limits=SolveLimits())
    assert dict(plan.parameters)["found_by"] == "branch and bound"
    easy = make_plan(make_problem([0], [1], [1], fixed=[FREE]), "exact")
    assert dict(easy.parameters)["found_by"] == "no reuse"
