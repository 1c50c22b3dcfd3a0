"""The one place where plans are made: alignment, fixed offsets, comparing, adopting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memplan_engine import planner
from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.errors import InputError, MemplanError, PlanError
from memplan_engine.kernels import is_compiled
from memplan_engine.planner import adopt, as_problem, compare, hard_problem, make_plan
from memplan_engine.problem import FREE, Gap, Problem, make_problem
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.auto import Auto
from memplan_engine.strategies.base import SolveLimits, Strategy
from memplan_engine.strategies.constructive.orders import FitRule
from memplan_engine.verify.validate import Rule, validate_plan
from tests.test_lifetimes import CHAIN

GREEDY_BY_SIZE = get_strategy("greedy_by_size")


def test_a_plan_of_a_graph_by_hand():
    # a [0, 3) 10 bytes, b [1, 3) 20, c [2, 4) 30, d [3, 4) 40; at 64 bytes each fills one unit.
    plan = make_plan(CHAIN)
    assert plan.problem.alignment.tolist() == [64] * 4
    assert plan.bound == Bound(138, BoundKind.ALIGNED_LOAD, 2, 64)
    assert plan.arena_bytes >= 138
    tight = make_plan(CHAIN, alignment=1)
    assert tight.bound == Bound(70, BoundKind.LOAD, 3)
    assert tight.naive_bytes == 100


def test_the_inputs_are_planned_on_request():
    assert "x" in make_plan(CHAIN, plan_inputs=True).problem.names


def test_figures_of_a_plan_by_hand():
    # Two live together, a third later: [0, 10), [10, 15), and the third at 3 on purpose.
    problem = make_problem([0, 0, 1], [1, 1, 2], [10, 5, 7])
    plan = adopt(problem, [0, 10, 13], "mine", 1.5)
    assert (plan.arena_bytes, plan.bound.nbytes, plan.packing_loss, plan.naive_bytes) == (20, 15, 5, 22)
    assert plan.gap == pytest.approx(1 / 3)
    assert not plan.optimal
    assert (plan.strategy, plan.seconds, plan.parameters) == ("mine", 1.5, ())


def test_equality_leaves_out_the_seconds():
    problem = make_problem([0], [1], [10])
    plan = adopt(problem, [0], "mine", 1.0)
    assert plan == adopt(problem, [0], "mine", 2.0)
    assert hash(plan) == hash(adopt(problem, [0], "mine", 2.0))
    for other in (
        adopt(problem, [1], "mine"),
        adopt(problem, [0], "yours"),
        replace(plan, parameters=(("a", 1),)),
    ):
        assert plan != other
    assert plan != "mine"


def test_the_same_plan_twice():
    assert make_plan(CHAIN, "greedy_by_size") == make_plan(CHAIN, "greedy_by_size")
    assert make_plan(CHAIN, "greedy_by_size").parameters == (("fit", "best"),)


def test_offsets_are_a_read_only_copy():
    offsets = np.array([4])
    plan = adopt(make_problem([0], [1], [10]), offsets)
    offsets[0] = 9
    assert plan.offsets.tolist() == [4]
    with pytest.raises(ValueError, match="read-only"):
        plan.offsets[0] = 0


@pytest.mark.parametrize("offsets", [[0.5], [2**63], ["a"]])
def test_offsets_that_are_no_integers_are_refused(offsets):
    with pytest.raises(InputError, match="plan: column offsets: found values that are not 64-bit integers"):
        adopt(make_problem([0], [1], [10]), offsets)


def test_an_alignment_for_a_problem_is_kept_besides_its_own():
    problem = make_problem([0, 0, 0], [1, 1, 1], [5, 5, 5], alignment=[4, 6, 1])
    assert as_problem(problem) is problem
    assert as_problem(problem, alignment=4).alignment.tolist() == [4, 12, 4]
    plan = make_plan(problem, alignment=16)
    assert (plan.offsets % [16, 48, 16] == 0).all()
    assert len(as_problem(make_problem([], [], []), alignment=16)) == 0


@pytest.mark.parametrize("alignment", [0, -64])
def test_an_alignment_below_1_is_refused(alignment):
    for source in (CHAIN, make_problem([0], [1], [1])):
        with pytest.raises(InputError, match=f"alignment: found {alignment}, expected 1 or more bytes"):
            make_plan(source, alignment=alignment)


@pytest.mark.parametrize("alignment", [2**62 - 1, 2**63 - 1, 2**64, 10**30])
def test_an_alignment_that_leads_past_2_to_the_63_is_refused(alignment):
    for source in (CHAIN, make_problem([0, 0], [1, 1], [1, 1], alignment=[64, 2])):
        with pytest.raises(InputError, match=r"expected (whole numbers below 2\^63|a sum below 2\^63)"):
            make_plan(source, alignment=alignment)


def test_an_alignment_that_a_fixed_offset_does_not_keep_is_refused():
    problem = make_problem([0], [1], [4], fixed=[8], names=["a"])
    with pytest.raises(InputError, match="buffer 'a': found offset 8, expected a multiple of alignment 16"):
        make_plan(problem, alignment=16)


@pytest.mark.parametrize("name", list(known_strategies()))
def test_fixed_offsets_that_collide_name_both_buffers(name):
    problem = make_problem(
        [0, 0, 2], [9, 4, 4], [5, 100, 20], fixed=[FREE, 64, 120], names=["free", "left", "right"]
    )
    with pytest.raises(PlanError) as caught:
        make_plan(problem, name)
    assert str(caught.value) == (
        "problem: fixed offsets collide: left and right overlap at steps 2–3 in bytes 120–139 (20 bytes)"
    )


def test_fixed_offsets_that_share_bytes_in_gaps_do_not_collide():
    gaps = {1: (Gap(2, 4),)}
    problem = make_problem([0, 0, 2], [9, 6, 4], [5, 8, 8], fixed=[FREE, 8, 8], gaps=gaps)
    assert make_plan(problem).offsets.tolist() == [0, 8, 8]


def test_compare_keeps_the_order_that_was_asked_for():
    assert [plan.strategy for plan in compare(CHAIN)] == list(known_strategies())
    assert [plan.strategy for plan in compare(CHAIN, ["naive", "auto"])] == ["naive", "auto"]
    assert compare(CHAIN, []) == []
    with pytest.raises(MemplanError, match="no strategy 'x'"):
        compare(CHAIN, ["x"])


def test_compare_plans_one_problem():
    plans = compare(CHAIN, ["naive", "auto"], alignment=8, plan_inputs=True)
    assert plans[0].problem is plans[1].problem
    assert plans[0].problem.alignment.tolist() == [8] * 5


def test_a_strategy_with_parameters():
    plan = make_plan(CHAIN, replace(GREEDY_BY_SIZE, fit=FitRule.FIRST))
    assert plan.parameters == (("fit", "first"),)


def test_adopting_does_not_judge():
    problem = make_problem([0, 0], [1, 1], [4, 4])
    assert list(validate_plan(adopt(problem, [0, 0])).counts) == [Rule.OVERLAP]
    assert list(validate_plan(adopt(problem, [0])).counts) == [Rule.COUNT]


def test_the_limits_are_also_taken_by_their_former_name():
    problem, limits = make_problem([0, 0], [1, 1], [4, 4]), SolveLimits()
    with pytest.warns(DeprecationWarning, match=r"budget= of make_plan .* limits=; .* version 1\.0"):
        make_plan(problem, "exact", budget=limits)
    assert limits.best_bytes == 8


def _warmed(monkeypatch: pytest.MonkeyPatch, problem: Problem, strategy: Strategy | str) -> list[str]:
    warmed: list[str] = []
    monkeypatch.setattr(planner, "is_compiled", lambda *names: False)
    monkeypatch.setattr(planner, "use_rare_kernels", lambda: None)
    monkeypatch.setattr(planner, "_warm", lambda *names: warmed.extend(names))
    make_plan(problem, strategy, limits=SolveLimits(nodes=1000))
    return warmed


def test_kernels_of_a_search_are_compiled_only_for_a_problem_that_is_searched(monkeypatch):
    # Two equal buffers one after the other: what first fit does cannot be beaten.
    row = make_problem([0, 1], [1, 2], [4, 4])
    assert _warmed(monkeypatch, row, "auto") == []
    assert _warmed(monkeypatch, row, "search")[-2:] == ["exact", "search"]
    searched = hard_problem()
    assert _warmed(monkeypatch, searched, "auto")[-2:] == ["exact", "search"]
    roomy = int(searched.size.sum())
    assert _warmed(monkeypatch, searched, Auto(capacity=roomy)) == []


def test_the_kernel_of_many_long_lives_is_compiled_before_the_clock_starts(monkeypatch):
    used: list[bool] = []
    monkeypatch.setattr(planner, "is_compiled", lambda *names: False)
    monkeypatch.setattr(planner, "use_tree_kernel", lambda: used.append(True))
    start = np.arange(9_000)
    make_plan(make_problem(start, start + 1, np.full(9_000, 8)), "greedy_by_size")
    assert not used
    make_plan(make_problem(start, np.full(9_000, 9_000), np.full(9_000, 8)), "greedy_by_size")
    assert used


def test_what_a_search_compiles_is_known_by_its_names():
    for name in ("exact", "search"):
        make_plan(hard_problem(), name, limits=SolveLimits(nodes=1000))
    planner.use_rare_kernels()
    planner.use_tree_kernel()
    assert all(is_compiled(name) for name in (*planner.SEARCH_KERNELS, planner.TREE_KERNEL))
    assert not is_compiled("branch.nobody")


def test_compiled_kernels_are_not_tried_without(monkeypatch):
    monkeypatch.setattr(planner, "is_compiled", lambda *names: True)
    monkeypatch.setattr(planner, "_settled_at_once", lambda *given: pytest.fail("planned twice"))
    assert make_plan(hard_problem(), "auto", limits=SolveLimits(nodes=1000)).arena_bytes > 0
