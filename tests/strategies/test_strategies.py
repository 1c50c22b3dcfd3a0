"""Every strategy on drawn problems, and each order by its definition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memplan_dashboard.background.jobs import goes_on

from memplan_engine.analysis.positional import shared_objects_bound
from memplan_engine.bounds import lower_bound
from memplan_engine.cli.options import make_limits
from memplan_engine.errors import InputError, MemplanError, PlanError
from memplan_engine.feasibility.decision import decide, decides, deciding
from memplan_engine.planner import DEFAULT_SECONDS, adopt, compare, make_plan, strategies_for
from memplan_engine.problem import Gap, make_problem
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.base import Placement, Progress, SolveLimits, is_anytime, parameters_of
from memplan_engine.strategies.constructive.order_fit import OrderFit, place_by_portfolio
from memplan_engine.strategies.constructive.orders import FitRule, make_timeline
from memplan_engine.strategies.shared_objects.assignment import SharedObjects
from memplan_engine.verify.validate import validate_plan
from tests.support import drawn, reference
from tests.support.manual_clock import cancelled_at_first_placement

GREEDY_BY_CONFLICTS = get_strategy("greedy_by_conflicts")
GREEDY_BY_SIZE = get_strategy("greedy_by_size")

# The package's own function of this name hides the module from `import … as`.
registry = import_module("memplan_engine.strategies")
NAMES = list(known_strategies())
FAMILY = [name for name, strategy in known_strategies().items() if isinstance(strategy, SharedObjects)]
FEW = 500
"""Nodes for each strategy that searches, where many problems are drawn."""
ORDERED = [name for name, strategy in known_strategies().items() if isinstance(strategy, OrderFit)]


def test_the_strategies_that_people_know_are_there():
    assert NAMES == [
        "auto",
        "exact",
        "search",
        "greedy_by_size",
        "greedy_by_breadth",
        "greedy_by_area",
        "greedy_by_lifetime",
        "greedy_by_conflicts",
        "best_fit_decreasing",
        "first_fit_by_start",
        "linear_scan",
        "naive",
        "shared_objects_by_size",
        "shared_objects_by_size_improved",
        "shared_objects_by_breadth",
        "shared_objects_in_order",
        "shared_objects_min_cost_flow",
        "partition",
    ]
    for name, strategy in known_strategies().items():
        assert strategy.name == name
        assert strategy.description
        assert strategy.source
        assert "\n" not in strategy.description + strategy.source


@given(problem=drawn.problems())
def test_every_placement_is_sound_and_none_is_below_the_bound(problem):
    before, bound = problem.fingerprint, lower_bound(problem).nbytes
    arenas = {}
    for name in strategies_for(problem):
        if is_anytime(known_strategies()[name]):
            # They have tests of their own.
            continue
        placement, again = (known_strategies()[name].place(problem, SolveLimits()) for _ in "12")
        offsets = placement.offsets
        reference.assert_sound(problem, offsets.tolist())
        assert validate_plan(adopt(problem, offsets, objects=placement.objects)).valid
        assert again.offsets.tolist() == offsets.tolist()
        assert (placement.objects is not None) == (name in FAMILY)
        if placement.objects is not None:
            assert again.objects.tolist() == placement.objects.tolist()
            assert shared_objects_bound(problem) <= reference.arena(problem, offsets)
        arenas[name] = reference.arena(problem, offsets)
        assert bound <= arenas[name]
    portfolio = place_by_portfolio(problem, SolveLimits(), bound)
    reference.assert_sound(problem, portfolio.offsets.tolist())
    assert portfolio.arena_bytes(problem) <= min(arenas[name] for name in ("naive", *ORDERED))
    assert problem.fingerprint == before


@given(problem=drawn.problems(fixed=False, alignments=st.just(1)))
def test_without_alignment_and_fixed_offsets_no_strategy_is_above_naive(problem):
    arenas = {plan.strategy: plan.arena_bytes for plan in compare(problem, limits=SolveLimits(nodes=FEW))}
    # Linear scan may: what it moves up leaves bytes behind that nobody asks for again.
    del arenas["linear_scan"]
    assert max(arenas.values()) == arenas["naive"] == problem.total_bytes


def test_alignment_alone_can_lift_a_greedy_above_naive_but_never_auto():
    # By size: 5 bytes at 0, then 2 at the next multiple of 4: 10. Naive: 2 at 0, 5 at 4: 9.
    problem = make_problem([0, 0], [1, 1], [2, 5], alignment=4)
    arenas = {plan.strategy: plan.arena_bytes for plan in compare(problem, limits=SolveLimits())}
    assert (arenas["greedy_by_size"], arenas["naive"], arenas["auto"]) == (10, 9, 9)
    # In the order of their starts, too, 1 comes first here: only starting from naive saves auto.
    later = make_problem([1, 0], [3, 3], [64, 100], alignment=[64, 1])
    arenas = {plan.strategy: plan.arena_bytes for plan in compare(later, limits=SolveLimits())}
    names = ("greedy_by_size", "first_fit_by_start", "naive", "auto")
    assert [arenas[name] for name in names] == [192, 192, 164, 164]


@given(
    problem=drawn.problems(most=5, steps=5, largest=5, alignments=st.sampled_from([1, 2, 3])),
)
def test_on_tiny_problems_bound_optimum_and_arena_come_in_that_order(problem):
    optimum = reference.optimum(problem)
    assert reference.load(problem) <= lower_bound(problem).nbytes <= optimum
    for plan in compare(problem, limits=SolveLimits(nodes=FEW)):
        assert plan.bound.nbytes <= optimum <= plan.arena_bytes
        if plan.optimal:
            assert optimum == plan.arena_bytes


def test_where_greedy_by_size_fails_by_hand():
    # Three buffers of 4 bytes (0, 2, 3) and one of 2 (1). By size: 0 at the bottom, 3 above it at [4, 8), 2
    # at the bottom again, and 1, which is live with 3 and then with 2, goes on top of all: 10 bytes. With 3
    # at the bottom and 0 above it, 2 and 1 find room at [0, 4) and [4, 6): 8 bytes, what is live at step 0.
    problem = make_problem([0, 1, 2, 0], [1, 3, 3, 2], [4, 2, 4, 4])
    plan = make_plan(problem, "greedy_by_size")
    assert plan.offsets.tolist() == [0, 8, 0, 4]
    assert (plan.arena_bytes, plan.bound.nbytes, plan.optimal) == (10, 8, False)
    assert reference.optimum(problem) == make_plan(problem, "auto", limits=SolveLimits()).arena_bytes == 8
    reference.assert_sound(problem, [4, 4, 0, 0])


@pytest.mark.parametrize("name", ORDERED)
@given(problem=drawn.problems(fixed=False))
def test_each_order_follows_its_definition(name, problem):
    strategy = known_strategies()[name]
    order = strategy.order(make_timeline(problem)).tolist()
    assert order == reference.order_of(problem, name)
    expected = reference.place(problem, order, strategy.fit.value)
    assert strategy.place(problem, SolveLimits()).offsets.tolist() == expected


@pytest.mark.parametrize("name", ORDERED)
def test_each_order_is_exact_for_numbers_that_floats_cannot_tell_apart(name):
    # Areas (2^40 + k) × 2^40 differ in their last bits only, far above 2^63.
    n = 4
    start = [0, 2**40, 2**41, 2**42]
    size = [2**40 + k for k in range(n)]
    problem = make_problem(start, [begin + 2**40 for begin in start], size)
    assert known_strategies()[name].order(make_timeline(problem)).tolist() == reference.order_of(
        problem, name
    )


def test_each_order_by_hand():
    #  buffer   steps   size  area  conflicts        live: step 0: 6, step 1: 9, step 2: 3, step 3: 7
    #  0        [0, 2)   6     12   1 (1)
    #  1        [1, 4)   3      9   2 (0, 2)
    #  2        [3, 4)   4      4   1 (1)
    problem = make_problem([0, 1, 3], [2, 4, 4], [6, 3, 4])
    orders = {name: known_strategies()[name].order(make_timeline(problem)).tolist() for name in ORDERED}
    assert orders == {
        "greedy_by_size": [0, 2, 1],
        "greedy_by_breadth": [0, 1, 2],
        "greedy_by_area": [0, 1, 2],
        "greedy_by_lifetime": [1, 0, 2],
        "greedy_by_conflicts": [1, 0, 2],
        "best_fit_decreasing": [0, 2, 1],
        "first_fit_by_start": [0, 1, 2],
    }


def test_best_fit_decreasing_breaks_ties_by_lifetime():
    problem = make_problem([0, 1], [1, 5], [4, 4])
    assert known_strategies()["best_fit_decreasing"].order(make_timeline(problem)).tolist() == [1, 0]
    assert known_strategies()["greedy_by_size"].order(make_timeline(problem)).tolist() == [0, 1]


def test_naive_stacks_in_the_given_order_above_what_is_fixed():
    problem = make_problem([0, 1, 2], [1, 2, 3], [5, 7, 2], alignment=4)
    assert make_plan(problem, "naive").offsets.tolist() == [0, 8, 16]
    fixed = make_problem([0, 1, 2], [1, 2, 3], [5, 7, 2], alignment=4, fixed=[-1, 12, -1])
    plan = make_plan(fixed, "naive")
    assert plan.offsets.tolist() == [20, 12, 28]
    assert plan.arena_bytes == plan.naive_bytes == 30


def test_a_strategy_of_ones_own_fit():
    problem = make_problem([0, 0, 1], [1, 2, 2], [4, 2, 3])
    # By conflicts 1, 0, 2: 1 at [0, 2), 0 above at [2, 6), 2 above 1 at [2, 5), on top of nothing else.
    plan = make_plan(problem, replace(GREEDY_BY_CONFLICTS, fit=FitRule.TOP))
    assert plan.offsets.tolist() == [2, 0, 2]
    assert plan.parameters == (("fit", "top"),)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [None, 7])
def test_no_buffers_at_all(name, steps):
    plan = make_plan(make_problem([], [], [], steps=steps), name)
    assert (plan.arena_bytes, plan.bound.nbytes, plan.naive_bytes) == (0, 0, 0)
    assert plan.optimal
    assert plan.gap == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_one_buffer_lies_at_the_bottom(name):
    assert make_plan(make_problem([3], [4], [10], alignment=64), name).offsets.tolist() == [0]


@pytest.mark.parametrize("name", NAMES)
def test_buffers_without_bytes_never_raise_the_arena_above_naive(name):
    plan = make_plan(make_problem([0, 0, 1], [2, 2, 2], [0, 10, 0]), name)
    assert plan.arena_bytes == 10


@pytest.mark.parametrize("name", NAMES)
def test_all_live_at_once_is_optimal_by_the_sum(name):
    plan = make_plan(make_problem([0] * 50, [9] * 50, range(1, 51)), name)
    assert plan.arena_bytes == 50 * 51 // 2
    assert plan.optimal


@pytest.mark.parametrize("name", NAMES)
def test_sizes_near_the_limit_and_times_of_10_to_the_18(name):
    time = 10**18
    size = [2**61 - 50, 2**61 - 100, 2**61 - 7, 2**61 - 1]
    problem = make_problem([0, 0, time, 2 * time], [3 * time, time, 2 * time, 3 * time], size, alignment=8)
    plan = make_plan(problem, name)
    reference.assert_sound(problem, plan.offsets.tolist())
    if name == "naive":
        assert plan.arena_bytes == plan.naive_bytes > 2**62
    elif name != "linear_scan":
        assert plan.arena_bytes < 2**62


@pytest.mark.parametrize("name", ["auto", *ORDERED])
def test_a_fixed_offset_far_above_the_rest_is_kept_and_its_end_is_the_bound(name):
    problem = make_problem([0, 0, 0], [1, 1, 1], [4, 5, 6], fixed=[-1, 1000, -1])
    plan = make_plan(problem, name)
    assert plan.offsets[1] == 1000
    assert plan.arena_bytes == plan.bound.nbytes == 1005


@pytest.mark.parametrize("name", NAMES)
def test_gaps_that_cover_a_whole_lifetime(name):
    problem = make_problem([0, 2, 0], [3, 10, 12], [5, 7, 2], gaps={1: (Gap(2, 10),)}, steps=12)
    plan = make_plan(problem, name)
    reference.assert_sound(problem, plan.offsets.tolist())
    # Only those that choose offsets give the bytes away that a buffer does not need in its gaps.
    assert plan.arena_bytes == (14 if name in ("naive", "linear_scan", *FAMILY) else 7)


@pytest.mark.parametrize("name", ORDERED)
def test_a_budget_that_is_spent_stops_a_constructive_strategy(name):
    limits = SolveLimits()
    limits.cancel()
    with pytest.raises(PlanError, match=f"problem: {name} was stopped before every buffer had its offset"):
        make_plan(make_problem([0], [1], [1]), name, limits=limits)


def test_auto_gives_a_valid_plan_however_small_the_budget():
    problem = make_problem([0, 1], [1, 2], [5, 5])
    cancelled = SolveLimits()
    cancelled.cancel()
    plan = make_plan(problem, "auto", limits=cancelled)
    assert plan.offsets.tolist() == [0, 5]
    assert dict(plan.parameters)["found_by"] == "no reuse"


def long_lives(n):
    """Return `n` buffers of any length, which no strategy packs to the bound."""
    random = np.random.default_rng(1)
    start = random.integers(0, n, n)
    return make_problem(start, start + random.integers(1, n, n), random.integers(1, 10**6, n))


def test_a_time_limit_ends_auto_early_with_the_best_so_far():
    reports: list[int] = []
    limits = SolveLimits(seconds=0.05, listener=lambda progress: reports.append(progress.arena_bytes))
    plan = make_plan(long_lives(3_000), "auto", limits=limits)
    assert plan.cut_short
    assert validate_plan(plan).valid
    assert reports[-1] == plan.arena_bytes


def test_each_report_is_better_than_the_one_before_and_the_last_is_the_plan():
    random = np.random.default_rng(2)
    start = random.integers(0, 100, 200)
    problem = make_problem(start, start + random.integers(1, 40, 200), random.integers(1, 1000, 200))
    reports: list[Progress] = []
    plan = make_plan(problem, limits=SolveLimits(listener=reports.append))
    arenas = [progress.arena_bytes for progress in reports if progress.arena_bytes is not None]
    assert len(arenas) > 2
    assert arenas == sorted(set(arenas), reverse=True)
    assert arenas[-1] == plan.arena_bytes
    assert reports[-1].found_by == dict(plan.parameters)["found_by"]


def test_cancelling_from_another_thread_ends_auto():
    limits = SolveLimits()
    with cancelled_at_first_placement(limits):
        plan = make_plan(long_lives(3_000), "auto", limits=limits)
    assert plan.cut_short
    assert plan.arena_bytes == limits.best_bytes


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(
        MemplanError,
        match=r"no strategy 'best'; there are: auto, exact, search, greedy_by_size, .*, naive, shared_obj",
    ):
        get_strategy("best")


@dataclass(frozen=True, slots=True)
class Upwards:
    """What another package may bring."""

    step: int = 16

    name: ClassVar[str] = "upwards"
    description: ClassVar[str] = "each buffer a fixed distance above the last"
    source: ClassVar[str] = "these tests"

    def place(self, problem, limits):
        return Placement(np.arange(len(problem)) * self.step)


@dataclass(frozen=True, slots=True)
class Patient(Upwards):
    """One that goes on until its limit, and can aim at a capacity."""

    step: int = 16
    capacity: int | None = None

    name: ClassVar[str] = "patient"
    anytime: ClassVar[bool] = True
    limits: ClassVar[list] = []

    def with_capacity(self, capacity):
        return replace(self, capacity=capacity)

    def place(self, problem, limits):
        self.limits.append((self.capacity, limits.seconds))
        placement = Placement(np.arange(len(problem)) * self.step)
        limits.report(placement, problem)
        return placement


class BadlyNamed(Upwards):
    name = "auto"


class Broken:
    def __init__(self):
        raise RuntimeError("no licence")


@pytest.fixture
def entry_point(monkeypatch):
    def install(value):
        entry = EntryPoint("theirs", f"{__name__}:{value}", registry.ENTRY_POINTS)
        monkeypatch.setattr(EntryPoint, "load", lambda self: globals()[value])
        monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
        known_strategies.cache_clear()

    yield install
    known_strategies.cache_clear()


def test_another_package_adds_a_strategy_through_an_entry_point(entry_point):
    entry_point("Upwards")
    assert list(known_strategies()) == [*NAMES, "upwards"]
    plan = make_plan(make_problem([0, 0], [1, 1], [9, 9]), "upwards")
    assert plan.offsets.tolist() == [0, 16]
    assert plan.parameters == (("step", 16),)


def test_an_anytime_strategy_of_another_package_gets_limits_and_capacities(entry_point):
    problem = make_problem([0, 0], [1, 1], [9, 9])
    entry_point("Upwards")
    assert make_limits("upwards", None).seconds is None
    assert not goes_on("upwards")
    assert not decides("upwards")
    with pytest.raises(InputError, match=r"'upwards', expected with a capacity auto or exact or search$"):
        decide(problem, 30, "upwards")
    entry_point("Patient")
    Patient.limits.clear()
    assert make_limits("patient", None).seconds == DEFAULT_SECONDS
    assert goes_on("patient")
    make_plan(problem, "patient")
    compare(problem, ["patient", "naive"], seconds=3.0)
    seen = []
    decide(problem, 30, "patient", limits=SolveLimits(2.0, listener=seen.append))
    assert Patient.limits == [(None, DEFAULT_SECONDS), (None, 3.0), (30, 2.0)]
    Patient.limits.clear()
    compare(problem, ["patient", "naive", "patient"], limits=SolveLimits(5.0))
    assert Patient.limits == [(None, 5.0)] * 2
    assert [progress.arena_bytes for progress in seen] == [25]
    assert deciding() == ("auto", "exact", "search", "patient")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("Broken", "entry point theirs = .*:Broken: cannot be loaded: no licence"),
        ("BadlyNamed", "entry point theirs: the strategy name 'auto' is in use"),
    ],
)
def test_a_strategy_that_cannot_be_added_is_named(entry_point, value, message):
    entry_point(value)
    with pytest.raises(MemplanError, match=message):
        known_strategies()


def test_a_package_that_is_broken_keeps_nobody_from_our_own_strategies(entry_point):
    entry_point("Broken")
    assert {name: get_strategy(name).name for name in registry.BUILT_IN} == {name: name for name in NAMES}
    with pytest.raises(MemplanError, match="cannot be loaded: no licence"):
        get_strategy("theirs")


def test_a_strategy_whose_placement_is_wrong_is_caught_and_named():
    with pytest.raises(PlanError, match="upwards gave an invalid plan: 0 and 1 overlap at steps 0–0"):
        make_plan(make_problem([0, 0], [1, 1], [20, 9]), Upwards())


def test_parameters_are_the_fields_and_nothing_else():
    assert parameters_of(GREEDY_BY_SIZE) == (("fit", "best"),)
    assert parameters_of(Upwards(3)) == (("step", 3),)
    assert parameters_of(get_strategy("auto")) == (("capacity", None),)
    assert parameters_of(get_strategy("exact")) == (("capacity", None),)
    assert parameters_of(get_strategy("naive")) == ()
