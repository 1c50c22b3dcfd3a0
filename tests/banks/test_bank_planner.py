"""Assignments to banks against all assignments of small problems, and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memplan_engine.banked.bank_core import BankCore, CoreKind
from memplan_engine.banked.banked_plan import (
    BankBound,
    BankBoundKind,
    BankedPlan,
    Objective,
    accessed_bytes,
    with_banks,
)
from memplan_engine.banks.bank_text import parse_bank
from memplan_engine.banks.bank_values import Bank
from memplan_engine.errors import InputError, PlanError
from memplan_engine.graph import Op
from memplan_engine.kernels.types import Ints
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import Problem, make_problem
from memplan_engine.spilling.bank_planner import decide_banks, plan_banks
from memplan_engine.strategies import known_strategies
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verify.bank_checks import core_is_proved, validate_banked
from memplan_engine.verify.validate import Rule
from tests.support.banked import best_by_hand, drawn_problem
from tests.support.graphs import make_graph

SECONDS = 60.0
"""Of searches that are through long before, also where the machine is busy."""


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(40))
def test_small_problems_are_solved_as_by_hand(seed: int, objective: Objective) -> None:
    problem = drawn_problem(seed, banks=2 + seed % 2, most=5)
    expected = best_by_hand(problem, peak=objective is Objective.PEAK)
    decision = decide_banks(problem, objective=objective, limits=SolveLimits(SECONDS))
    if expected is None:
        assert decision.plan is None
        assert decision.core is not None
        assert core_is_proved(decision.core) is True
        assert best_by_hand(decision.core.problem) is None
        return
    assert decision.plan is not None
    assert decision.plan.value == expected
    assert decision.plan.bound.value == expected
    report = validate_banked(decision.plan)
    assert (report.violations, report.unchecked) == ((), ())


def three(banks: str, accessed: tuple[int, ...] = (8, 8, 8), **more: object) -> Problem:
    """Buffers of 4, 4 and 2 bytes that are live together."""
    problem = make_problem([0, 0, 0], [2, 2, 2], [4, 4, 2], names=["a", "b", "c"], **more)  # type: ignore[arg-type]
    own = [parse_bank(text) for text in banks.split()]
    return with_banks(problem, own, accessed=np.array(accessed))


def test_what_costs_least_for_its_room_is_spilled() -> None:
    """Six bytes of SRAM: the 4 bytes that are accessed most, and the 2."""
    plan = plan_banks(three("sram=6 dram", accessed=(8, 20, 6)))
    assert plan.bank_of.tolist() == [1, 0, 0]
    assert (plan.traffic, plan.bound.value, plan.optimal) == (8, 8, True)
    assert [own.arena_bytes for own in plan.plans] == [6, 4]
    assert plan.spilled.tolist() == [0]


def test_bandwidths_make_costs_times() -> None:
    """SRAM is four times as fast: 8 bytes in DRAM cost as much as 32 in SRAM."""
    problem = three("sram=6,bandwidth=4GB/s dram,bandwidth=1GB", accessed=(8, 20, 6))
    plan = plan_banks(problem)
    assert problem.banks is not None
    assert problem.banks.weights == (1, 4)
    assert plan.traffic == 8 * 4 + 20 + 6
    assert plan.traffic / problem.banks.second == pytest.approx(8 / 1e9 + 26 / 4e9)


def test_the_slow_banks_peak_may_be_what_counts() -> None:
    """The traffic keeps `c` out of SRAM, the peak of DRAM wants as many bytes in it as fit."""
    problem = three("sram=8 dram", accessed=(8, 1, 100))
    assert plan_banks(problem).bank_of.tolist() == [0, 1, 0]
    plan = plan_banks(problem, objective=Objective.PEAK)
    assert plan.bank_of.tolist() == [0, 0, 1]
    assert (plan.value, plan.bound) == (2, BankBound(2, BankBoundKind.ROOM, step=0))


def test_packing_decides_and_not_live_bytes() -> None:
    """At no step are more than 3 bytes live, and an arena of 3 has no room for all, for each arrangement
    leaves one of the last two without two bytes side by side."""
    problem = make_problem([0, 0, 0, 1, 1, 2], [2, 1, 3, 2, 3, 3], [1, 1, 1, 1, 1, 1], alignment=1)
    tight = make_problem([0, 0, 1, 2], [3, 1, 2, 3], [1, 2, 2, 2], alignment=[1, 2, 2, 2])
    assert len(problem) == 6
    plan = plan_banks(with_banks(tight, [Bank("sram", 3), Bank("dram")]), limits=SolveLimits(SECONDS))
    # Offsets 0 of the pairs leave byte 2 for the single one: all fit.
    assert plan.traffic == 0
    odd = make_problem([0, 0], [2, 2], [1, 2], alignment=[2, 2])
    plan = plan_banks(with_banks(odd, [Bank("sram", 3), Bank("dram")], accessed=np.array([5, 7])))
    # 1 byte at 2 behind 2 bytes at 0.
    assert plan.traffic == 0
    odd = make_problem([0, 0], [2, 2], [1, 1], alignment=[2, 2])
    plan = plan_banks(with_banks(odd, [Bank("sram", 2), Bank("dram")], accessed=np.array([5, 7])))
    assert (plan.traffic, plan.bound.kind, plan.optimal) == (5, BankBoundKind.SEARCH, True)


def test_a_banks_alignment_is_kept_beside_that_of_buffers() -> None:
    plan = plan_banks(three("sram=16,alignment=6 dram", alignment=4))
    assert plan.plans[0].problem.alignment.tolist() == [12, 12]
    assert plan.plans[0].offsets.tolist() in ([0, 12], [12, 0])
    assert validate_banked(plan).valid


def test_a_preference_weighs_more_than_what_the_bank_costs() -> None:
    problem = make_problem([0], [1], [4])
    banks = [Bank("sram", 8), Bank("dram")]
    wished = with_banks(problem, banks, preferred=np.array([1]))
    assert plan_banks(wished).bank_of.tolist() == [1]
    assert plan_banks(with_banks(problem, banks)).bank_of.tolist() == [0]


@pytest.mark.parametrize(
    ("banks", "allowed", "kind", "names"),
    [
        ("sram=3 dram=3", None, CoreKind.LARGEST, ("a",)),
        ("sram=4 dram=4", None, CoreKind.ROOM, ("a", "b", "c")),
        ("sram=5 dram=5", None, CoreKind.SEARCH, ("a", "b", "c")),
        ("sram=9,alignment=6 dram", (1, 0), CoreKind.PACKING, ("a", "b")),
    ],
)
def test_why_there_is_no_room(
    banks: str, allowed: tuple[int, int] | None, kind: CoreKind, names: tuple[str, ...]
) -> None:
    problem = three(banks)
    if allowed:
        own = [parse_bank(text) for text in banks.split()]
        shown = np.array([allowed] * 3, dtype=bool)
        shown[2] = [False, True]
        problem = with_banks(replace(problem, banks=None), own, allowed=shown)
    decision = decide_banks(problem, limits=SolveLimits(SECONDS))
    assert decision.plan is None
    assert decision.core is not None
    assert (decision.core.kind, decision.core.problem.names) == (kind, names)
    assert core_is_proved(decision.core) is True
    with pytest.raises(PlanError, match="|".join(names)):
        plan_banks(problem, limits=SolveLimits(SECONDS))


def test_a_core_with_room_is_not_believed() -> None:
    problem = three("sram=6 dram=4")
    wrong = [
        BankCore(problem, CoreKind.ROOM, ("sram", "dram"), 11, 10, 0),
        BankCore(problem, CoreKind.LARGEST, ("sram", "dram"), 4, 6, 0),
        BankCore(problem, CoreKind.PACKING, ("sram",), 11, 6, 0),
        BankCore(problem, CoreKind.SEARCH, ("sram", "dram"), 10, 10, 0),
    ]
    assert [core_is_proved(core) for core in wrong] == [False] * 4


def test_the_checker_finds_what_is_wrong() -> None:
    problem = three("sram=6 dram", accessed=(8, 20, 6))
    plan = plan_banks(problem)
    assert broken_rules(plan) == set()
    assert broken_rules(replace(plan, bank_of=column(0, 1, 0))) == {Rule.BANK}
    assert broken_rules(replace(plan, bank_of=column(1, 5, 0))) == {Rule.BANK}
    assert broken_rules(replace(plan, bound=replace(plan.bound, value=9))) == {Rule.BOUND}
    looser = replace(plan, bound=BankBound(8, BankBoundKind.PRICES))
    assert broken_rules(looser) == {Rule.BOUND}
    assert broken_rules(replace(plan, bound=BankBound(8, BankBoundKind.SEARCH))) == set()
    smaller = with_banks(replace(problem, banks=None), [Bank("sram", 5), Bank("dram")])
    assert Rule.CAPACITY in broken_rules(
        replace(plan, problem=smaller, bound=BankBound(0, BankBoundKind.PRICES))
    )
    moved = replace(plan.plans[0], offsets=column(0, 2))
    assert broken_rules(replace(plan, plans=(moved, plan.plans[1]))) == {Rule.OVERLAP}
    worse = replace(plan, bank_of=column(0, 1, 1), plans=plan_of(problem, (0, 1, 1)))
    assert broken_rules(replace(worse, bound=BankBound(26, BankBoundKind.SEARCH))) == {Rule.BOUND}


def test_prices_of_a_bank_without_capacity_prove_nothing() -> None:
    plan = plan_banks(three("sram=6 dram", accessed=(8, 20, 6)))
    for prices in (((1, 0, 5),), ((0, 0, -5),), ((7, 0, 5),)):
        wrong = BankBound(1, BankBoundKind.PRICES, prices, 1)
        assert broken_rules(replace(plan, bound=wrong)) == {Rule.BOUND}
    # One byte of the six costs 2: a 8 or 8, b 8 or 20, c 4 or 6; less 12.
    right = BankBound(8, BankBoundKind.PRICES, ((0, 1, 2),), 1)
    assert broken_rules(replace(plan, bound=right)) == set()


@pytest.mark.parametrize("strategy", known_strategies())
def test_each_strategy_packs_the_banks(strategy: str) -> None:
    problem = drawn_problem(8, banks=2, most=6)
    decision = decide_banks(problem, strategy, limits=SolveLimits(SECONDS))
    assert decision.plan is not None
    assert validate_banked(decision.plan).valid
    assert decision.plan.value == best_by_hand(problem)


def test_many_buffers_are_placed_within_the_bound_and_the_capacity() -> None:
    """A stream of buffers, a third of which live long: what is spilled is near the bound of the prices."""
    rng = np.random.default_rng(1)
    n = 1_500
    start = rng.integers(0, 800, n)
    end = start + 1 + rng.integers(0, 3, n) + 12 * rng.integers(0, 2, n)
    problem = make_problem(start, end, 16 * rng.integers(1, 9, n), name="stream")
    banked = with_banks(
        problem, [Bank("sram", 900), Bank("dram")], accessed=problem.size * rng.integers(2, 6, n)
    )
    plan = plan_banks(banked, limits=SolveLimits(2.0))
    assert plan.plans[0].arena_bytes <= 900
    assert validate_banked(plan, replay=False).valid
    assert 0 < plan.bound.value <= plan.traffic <= 1.5 * plan.bound.value


VIEWED = make_graph(
    [
        Op("relu", "relu", ("x",), ("a",)),
        Op("view", "view", ("a",), ("v",)),
        Op("add", "add", ("v", "w"), ("b",)),
        Op("relu_", "relu_", ("b",), ("c",), mutates=("b",)),
    ],
    {"x": 100, "a": 10, "b": 20, "w": 7},
    views={"v": "a", "c": "b"},
    inputs=["x"],
    outputs=["c"],
    constants=["w"],
)


def test_accesses_are_counted_by_op_and_not_for_views() -> None:
    """`a` is written and read as `v`; `b` is written, then read and written in place."""
    assert accessed_bytes(VIEWED) == {"x": 100, "a": 20, "w": 7, "b": 60}


def test_constants_are_buffers_where_a_bank_is_read_only() -> None:
    """`w` may live in flash and in SRAM, all the time; the others in SRAM only."""
    plain = to_problem(VIEWED, alignment=1)
    problem = with_banks(plain, [Bank("sram", 30), Bank("flash", read_only=True)])
    assert problem.names == ("a", "b", "w")
    assert problem.banks is not None
    assert problem.banks.allowed.tolist() == [[True, False], [True, False], [True, True]]
    assert (int(problem.start[2]), int(problem.end[2])) == (0, 4)
    plan = plan_banks(problem)
    assert (plan.bank_of.tolist(), plan.traffic, plan.optimal) == ([0, 0, 1], 7, True)
    assert len(with_banks(plain, [Bank("sram", 30), Bank("dram")])) == 2


def test_problems_with_other_banks_are_others() -> None:
    one, other = three("sram=6 dram"), three("sram=7 dram")
    assert one != other
    assert one == three("sram=6 dram")
    assert one != replace(one, banks=None)


@pytest.mark.parametrize(
    ("banks", "message"),
    [
        ([], "0 banks"),
        ([Bank("a"), Bank("a")], "the name twice"),
        ([Bank("a|b")], "such a name"),
        ([Bank("a", -1)], "capacity -1"),
        ([Bank("a", alignment=0)], "alignment 0"),
        ([Bank("a", bandwidth=5), Bank("b")], "the bandwidth of a only"),
        ([Bank("a", bandwidth=2**40 + 1), Bank("b", bandwidth=2**40 - 1)], "rounder bandwidths"),
        ([Bank("flash", read_only=True)], "no bank that it may live in"),
    ],
)
def test_banks_that_make_no_sense_are_refused(banks: list[Bank], message: str) -> None:
    problem = make_problem([0], [1], [2**22])
    with pytest.raises(InputError, match=message):
        with_banks(problem, banks)


def test_a_fixed_offset_needs_one_bank() -> None:
    problem = make_problem([0, 0], [1, 1], [4, 4], fixed=[4, -1])
    banks = [Bank("sram", 8), Bank("dram")]
    with pytest.raises(InputError, match="a fixed offset in any of 2 banks"):
        with_banks(problem, banks)
    allowed = np.array([[True, False], [True, True]])
    plan = plan_banks(with_banks(problem, banks, allowed=allowed))
    assert plan.offsets.tolist() == [4, 0]
    assert plan.bank_of.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "bank"),
    [
        ("sram=256KiB", Bank("sram", 262_144)),
        ("dram", Bank("dram")),
        ("sram = 1kB, bandwidth=4GB/s, alignment=64", Bank("sram", 1000, 64, 4_000_000_000)),
        ("flash=2MiB,read-only", Bank("flash", 2**21, read_only=True)),
    ],
)
def test_banks_are_read_as_people_write_them(text: str, bank: Bank) -> None:
    assert parse_bank(text) == bank


def test_what_is_not_said_of_a_bank_stays() -> None:
    own = [Bank("sram", 8, 16, 100), Bank("dram", 9)]
    assert parse_bank("sram=4", before=own) == Bank("sram", 4, 16, 100)
    assert parse_bank("dram=unlimited,alignment=2", before=own) == Bank("dram", None, 2)


@pytest.mark.parametrize("text", ["", "=4", "sram=", "sram=4,fast", "sram,alignment=2,alignment=2", "sram=x"])
def test_what_is_no_bank_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--bank"):
        parse_bank(text)


def column(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def broken_rules(plan: BankedPlan) -> set[Rule]:
    return set(validate_banked(plan).counts)


def plan_of(problem: Problem, bank_of: tuple[int, ...]) -> tuple[object, ...]:
    """The plans of an assignment, each buffer in the one bank of it."""
    allowed = np.zeros((len(problem), 2), dtype=bool)
    allowed[np.arange(len(problem)), bank_of] = True
    assert problem.banks is not None
    return plan_banks(with_banks(replace(problem, banks=None), problem.banks.banks, allowed=allowed)).plans
