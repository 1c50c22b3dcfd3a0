"""The decision form: fits, does not fit with a core that can be replayed, or undecided within the limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.families import adversarial, perfect
from memplan_engine.bounds import BoundKind, contributors, lower_bound
from memplan_engine.errors import InputError, PlanError
from memplan_engine.feasibility.decision import decide
from memplan_engine.files import load
from memplan_engine.planner import make_plan
from memplan_engine.problem import FREE, Gap, make_problem, select
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verdict import Verdict
from memplan_engine.verify.certificates import Outcome, replay
from memplan_engine.verify.validate import validate_plan
from tests import ROOT
from tests.support import drawn, reference, tight

MANY_NODES = 5_000_000
"""More than any of these problems needs; one thread visits them in seconds."""


def check(problem, capacity, optimum):
    """The verdict is right, and what it rests on holds."""
    decision = decide(problem, capacity, limits=SolveLimits(nodes=MANY_NODES))
    reference.assert_sound(problem, decision.plan.offsets.tolist())
    assert decision.capacity == capacity
    if capacity >= optimum:
        assert decision.verdict is Verdict.FITS
        assert decision.plan.arena_bytes <= capacity
    else:
        assert decision.verdict is Verdict.DOES_NOT_FIT
        assert capacity < decision.bound.nbytes <= optimum
        assert decision.bound is decision.plan.bound
    if decision.bound.kind is BoundKind.CORE:
        core = np.array(decision.bound.core)
        assert not reference.fits(select(problem, core), decision.bound.nbytes - 1)
        assert replay(problem, decision.bound).outcome is Outcome.PROVED
    return decision


@pytest.mark.parametrize("kind", tight.EXACT, ids=lambda kind: kind.__name__)
def test_every_capacity_around_the_optimum_is_decided(kind):
    cores = 0
    for problem in tight.many(kind, 15, seed=11):
        optimum = reference.least_arena(problem)
        load = lower_bound(problem).nbytes
        for capacity in range(load - 1, optimum + 2):
            cores += check(problem, capacity, optimum).bound.kind is BoundKind.CORE
    assert cores >= (2 if kind in (tight.no_way_out, tight.fixed) else 0)


@given(
    problem=drawn.problems(
        least=1, most=6, steps=5, largest=5, alignments=st.sampled_from([1, 1, 2, 3])
    ).filter(lambda problem: not any(gap.low < gap.high for g in problem.gaps.values() for gap in g)),
    room=st.integers(-2, 3),
)
def test_whatever_a_problem_has(problem, room):
    optimum = reference.least_arena(problem)
    check(problem, max(0, optimum + room), optimum)


def test_windows_may_leave_it_open_but_never_wrong():
    for problem in tight.many(tight.windows, 25, seed=12):
        optimum = reference.least_arena(problem)
        for capacity in range(max(0, optimum - 2), optimum + 2):
            verdict = decide(problem, capacity, limits=SolveLimits(nodes=20_000)).verdict
            wrong = Verdict.DOES_NOT_FIT if capacity >= optimum else Verdict.FITS
            assert verdict is not wrong


def test_no_way_out_by_hand():
    problem = make_problem(*tight.NO_WAY_OUT.T, names=list("abcdefghi"))
    refused = check(problem, 5, 6)
    assert refused.verdict is Verdict.DOES_NOT_FIT
    assert refused.bound.nbytes == 6
    named = {problem.names[b] for b in contributors(problem, refused.bound).tolist()}
    assert named == set("abcdeghi")
    assert check(problem, 6, 6).verdict is Verdict.FITS
    assert check(problem, 4, 6).bound.kind is BoundKind.LOAD


def test_a_core_says_where_and_leaves_the_rest_out():
    made = adversarial.no_way_out(4)
    assert made.optimum is not None
    decision = decide(made.problem, made.optimum - 1, limits=SolveLimits(nodes=MANY_NODES))
    assert decision.verdict is Verdict.DOES_NOT_FIT
    core = np.array(decision.bound.core)
    assert len(core) <= 10
    start, end = made.problem.start[core], made.problem.end[core]
    assert (start < decision.bound.until).all()
    assert (end > decision.bound.step).all()
    assert replay(made.problem, decision.bound).outcome is Outcome.PROVED
    alone = select(made.problem, core)
    again = decide(alone, made.optimum - 1, limits=SolveLimits(nodes=MANY_NODES))
    assert again.verdict is Verdict.DOES_NOT_FIT
    assert replay(alone, again.bound).outcome is Outcome.PROVED
    enough = decide(made.problem, made.optimum, limits=SolveLimits(nodes=MANY_NODES))
    assert enough.verdict is Verdict.FITS


@pytest.mark.parametrize("seed", range(3))
def test_perfect_packings_fit_exactly(seed):
    made = perfect.guillotine(80, seed)
    assert made.optimum is not None
    decision = decide(made.problem, made.optimum, limits=SolveLimits(nodes=MANY_NODES))
    assert decision.verdict is Verdict.FITS
    assert decision.plan.arena_bytes == made.optimum
    refused = decide(made.problem, made.optimum - 1, limits=SolveLimits(nodes=MANY_NODES))
    assert refused.verdict is Verdict.DOES_NOT_FIT
    assert (refused.bound.kind, refused.plan.nodes) == (BoundKind.LOAD, 0)


def test_it_ends_as_soon_as_the_plan_fits():
    """Far above the optimum the first placement is enough; nothing is searched."""
    problem = make_problem(*(tight.NO_WAY_OUT * (1, 1, 100)).T)
    decision = decide(problem, 2000)
    assert decision.verdict is Verdict.FITS
    assert decision.plan.nodes == 0
    assert decision.bound.nbytes == 500


HARD = tight.crowded(np.random.default_rng(1), 150, 200, 50)


@pytest.mark.parametrize("strategy", ["auto", "exact", "search"])
def test_undecided_within_its_nodes_and_always_with_the_same_plan(strategy):
    capacity = lower_bound(HARD).nbytes + 3
    decision, again = (decide(HARD, capacity, strategy, limits=SolveLimits(nodes=2_000)) for _ in "12")
    assert 0 < decision.plan.nodes <= 2_001
    assert again.plan.nodes == decision.plan.nodes
    assert again.plan == decision.plan
    assert decision.verdict is Verdict.UNDECIDED
    assert decision.plan.cut_short
    assert decision.bound.nbytes <= decision.capacity < decision.plan.arena_bytes
    assert validate_plan(decision.plan, replay=False).valid


def test_a_budget_spent_before_it_begins_decides_what_bounds_decide():
    spent = SolveLimits()
    spent.cancel()
    load = lower_bound(HARD).nbytes
    assert decide(HARD, load - 1, limits=spent).verdict is Verdict.DOES_NOT_FIT
    assert decide(HARD, load, limits=spent).verdict is Verdict.UNDECIDED
    assert decide(HARD, HARD.total_bytes, limits=spent).verdict is Verdict.FITS


def test_a_capacity_below_the_largest_buffer():
    problem = make_problem([0, 5], [5, 9], [8, 3])
    decision = check(problem, 7, 8)
    assert decision.verdict is Verdict.DOES_NOT_FIT
    assert contributors(problem, decision.bound).tolist() == [0]
    # In a gap it holds nothing, but its bytes must be somewhere.
    gone = make_problem([0], [4], [8], gaps={0: (Gap(0, 4),)})
    assert decide(gone, 7).verdict is Verdict.DOES_NOT_FIT
    assert decide(gone, 7).bound.kind is BoundKind.LARGEST
    assert decide(gone, 8).verdict is Verdict.FITS


def test_no_bytes_fit_where_nothing_needs_any():
    assert decide(make_problem([], [], []), 0).verdict is Verdict.FITS
    assert decide(make_problem([0, 0], [1, 1], [0, 0]), 0).verdict is Verdict.FITS
    assert decide(make_problem([0], [1], [1]), 0).verdict is Verdict.DOES_NOT_FIT


def test_a_capacity_below_nothing_is_an_error():
    with pytest.raises(InputError, match=r"problem: capacity: found -1, expected 0 or more bytes"):
        decide(make_problem([0], [1], [1]), -1)


def test_fixed_offsets_that_collide_are_both_named():
    problem = make_problem([0, 2, 1], [3, 5, 2], [8, 8, 1], names=["a", "b", "c"], fixed=[0, 4, FREE])
    with pytest.raises(
        PlanError, match="problem: fixed offsets collide: a and b overlap at steps 2–2 in bytes 4–7"
    ) as raised:
        decide(problem, 100)
    assert "\n" not in str(raised.value)


def test_fixed_offsets_that_do_not_collide_because_of_a_gap():
    gone = {0: (Gap(2, 3),)}
    problem = make_problem([0, 2], [4, 3], [8, 8], fixed=[0, 4], gaps=gone)
    assert check(problem, 12, 12).verdict is Verdict.FITS
    assert check(problem, 11, 12).verdict is Verdict.DOES_NOT_FIT


def test_a_fixed_offset_that_passes_the_capacity():
    problem = make_problem([0, 0], [1, 1], [4, 2], fixed=[10, FREE])
    refused = check(problem, 13, 14)
    assert refused.bound.kind is BoundKind.FIXED
    assert contributors(problem, refused.bound).tolist() == [0]
    assert check(problem, 14, 14).verdict is Verdict.FITS


def test_what_only_alignment_makes_too_large():
    # 5 + 5 + 5 bytes at multiples of 8: 21, though 15 would do without.
    problem = make_problem([0, 0, 0], [1, 1, 1], [5, 5, 5], alignment=8)
    assert check(problem, 20, 21).verdict is Verdict.DOES_NOT_FIT
    assert check(problem, 21, 21).verdict is Verdict.FITS
    # No multiple of 64 lies under the buffer that is fixed there, and none below the capacity above it.
    around = make_problem([0, 0], [1, 1], [10, 8], alignment=[1, 64], fixed=[0, FREE])
    assert check(around, 71, 72).verdict is Verdict.DOES_NOT_FIT
    assert check(around, 72, 72).verdict is Verdict.FITS


def test_holes_between_fixed_offsets_that_are_too_small():
    # 3 + 3 bytes free below byte 10, but in pieces of 3, and 4 are asked for.
    problem = make_problem([0] * 3, [1] * 3, [2, 2, 4], fixed=[3, 8, FREE])
    assert check(problem, 10, 14).verdict is Verdict.DOES_NOT_FIT
    assert check(problem, 13, 14).verdict is Verdict.DOES_NOT_FIT
    assert check(problem, 14, 14).verdict is Verdict.FITS


def test_the_same_question_gives_the_same_answer():
    problem = tight.many(tight.no_way_out, 1, seed=4)[0]
    optimum = reference.least_arena(problem)
    for capacity in (optimum - 1, optimum):
        limits = (SolveLimits(seed=3, nodes=MANY_NODES) for _ in "12")
        one, other = (decide(problem, capacity, limits=each) for each in limits)
        assert one.plan.offsets.tolist() == other.plan.offsets.tolist()
        assert one.bound == other.bound
        assert one.plan.nodes == other.plan.nodes


PUBLISHED = ROOT.parent / "shared" / "data"
CHALLENGING = [f"minimalloc/{letter}.1048576" for letter in "ABCDEFGHIJK"]
AT_LOAD = [name for name in CHALLENGING if name[11] not in "DJ"] + [
    "idealloc/resnet50",
    "idealloc/pangu_2.6B",
]


def published(name):
    """A list of buffers that its authors published, where somebody has put it beside the checkout."""
    path = PUBLISHED / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"needs {path}")
    return load(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHALLENGING)
def test_the_challenging_set_of_minimalloc_fits_into_the_capacity_of_its_paper(name):
    problem = published(name)
    decision = decide(problem, 1_048_576, limits=SolveLimits(nodes=MANY_NODES))
    assert decision.verdict is Verdict.FITS
    assert decision.plan.arena_bytes <= 1_048_576
    assert validate_plan(decision.plan).valid
    reference.assert_sound(problem, decision.plan.offsets.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_LOAD)
def test_published_instances_are_packed_at_their_load(name):
    problem = published(name)
    plan = make_plan(problem, "auto", limits=SolveLimits(nodes=MANY_NODES))
    assert plan.arena_bytes == plan.bound.nbytes == lower_bound(problem).nbytes
    assert validate_plan(plan).valid
