"""Orders taken by hand, the set that a cut draws, which ops moved, a search that no clock decides."""

from __future__ import annotations

from itertools import combinations, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import Graph, InputError, load, make_plan
from memplan_engine.preparation import Preparation, prepare, prepared_reuse
from memplan_engine.rewrites.order.heuristics import least_peak_first
from memplan_engine.rewrites.order.order_problem import OrderProblem, order_problem
from memplan_engine.rewrites.order.reorder import reorder
from memplan_engine.rewrites.order.steps import crossing_set, ready_units, steps_of
from memplan_engine.schedule import moved
from tests.rewrites.order_graphs import random_graph

EXAMPLES = Path(__file__).parents[2] / "example_graphs"
KIB = 1024


def teaching() -> Graph:
    graph = load(EXAMPLES / "teaching_order.json")
    assert isinstance(graph, Graph)
    return graph


def test_the_steps_of_the_teaching_graph_by_hand() -> None:
    """a 8, b 6, c 8, d 1, e 4, f 6, g 2, h 1 KiB: a is read by b and f, b by c, d by e, f by g; all by h."""
    problem = order_problem(teaching(), merge=False)
    steps = steps_of(problem, [0, 5, 6, 1, 2, 3, 4, 7])
    assert [step.live // KIB for step in steps] == [8, 14, 16, 16, 16, 11, 15, 15]
    assert [step.left // KIB for step in steps] == [8, 14, 10, 8, 10, 11, 14, 1]
    ready = ready_units(problem, [0, 5], 14 * KIB)
    assert [(each.unit, each.allocates // KIB, each.live // KIB, each.left // KIB) for each in ready] == [
        (1, 6, 20, 12),
        (3, 1, 15, 15),
        (6, 2, 16, 10),
    ]
    assert problem.peak(range(8)) == 26 * KIB
    assert problem.peak(least_peak_first(problem.arrays)) == 24 * KIB


def test_only_one_of_its_126_orders_is_best_and_the_cut_says_why() -> None:
    problem = order_problem(teaching(), merge=False)
    peaks = [int(live.max()) for order in permutations(range(8)) if len(live := problem.live(order))]
    assert (len(peaks), min(peaks), peaks.count(16 * KIB)) == (126, 16 * KIB, 1)
    # While c runs: what b and g have made, and c itself.
    found = crossing_set(problem, 2)
    assert (found.units, found.crossing) == ((0, 1, 5, 6), (1, 6))
    assert (found.makes, found.needed) == (8 * KIB, 16 * KIB)


def closed_sets(problem: OrderProblem, unit: int) -> list[set[int]]:
    """All that may have run right before `unit`, by trying every set."""
    o = problem.arrays
    before = [set(o.before[o.before_of[v] : o.before_of[v + 1]].tolist()) for v in range(len(problem.units))]
    others = [v for v in range(len(problem.units)) if v != unit]
    sets = (set(some) for count in range(len(others) + 1) for some in combinations(others, count))
    return [some for some in sets if before[unit] <= some and all(before[v] <= some for v in some)]


def left_by(problem: OrderProblem, done: set[int]) -> int:
    o = problem.arrays
    return sum(
        int(o.size[each])
        for each in range(len(o.size))
        if int(o.maker[each]) in done
        and (o.kept[each] or not set(o.users[o.users_of[each] : o.users_of[each + 1]].tolist()) <= done)
    )


@given(st.integers(0, 10_000))
def test_no_set_that_may_have_run_leaves_less_than_the_one_that_is_drawn(seed: int) -> None:
    problem = order_problem(random_graph(seed, 8), merge=False)
    for unit in range(len(problem.units)):
        found = crossing_set(problem, unit)
        assert set(found.units) in closed_sets(problem, unit)
        least = min(left_by(problem, each) for each in closed_sets(problem, unit))
        assert left_by(problem, set(found.units)) == least == found.needed - found.makes
        assert sum(int(problem.arrays.size[each]) for each in found.crossing) == least


@given(st.integers(0, 10_000))
def test_steps_agree_with_the_kernel_that_replays_orders(seed: int) -> None:
    problem = order_problem(random_graph(seed, 8), merge=False)
    order = least_peak_first(problem.arrays).tolist()
    steps = steps_of(problem, order)
    assert [step.live for step in steps] == problem.live(order).tolist()
    for place, step in enumerate(steps):
        ready = ready_units(problem, order[:place], steps[place - 1].left if place else 0)
        assert step in ready


@given(st.permutations(range(7)))
def test_the_fewest_ops_that_moved(order: list[int]) -> None:
    """By brute force: no larger set of ops stands in the same order in both."""
    before, after = list(map(str, range(7))), list(map(str, order))
    gone = moved(before, after)
    stays = [name for name in after if name not in gone]
    assert stays == sorted(stays)
    longest = max(
        count for count in range(8) for some in combinations(after, count) if list(some) == sorted(some)
    )
    assert len(stays) == longest


def test_moved_counts_only_what_both_have() -> None:
    assert moved("abcd", "dabcx") == ("d",)
    assert moved("abc", "abc") == moved("", "abc") == moved("abc", "") == ()


def test_a_brief_search_proves_what_is_easy_and_says_the_same_each_time() -> None:
    graph = load(EXAMPLES / "gpt2.json")
    several = [reorder(graph, brief=True, in_place=True) for _ in range(2)]
    assert several[0].live_after == several[0].bound_bytes == 28_311_552
    assert several[0].graph == several[1].graph
    assert (several[0].certificate, several[0].states) == (several[1].certificate, several[1].states)


def test_the_planning_option_plans_the_best_order_with_what_is_written_in_place() -> None:
    graph = load(EXAMPLES / "gpt2.json")
    arenas = [
        make_plan(prepare(graph, Preparation(reorder=True, in_place=in_place))).arena_bytes
        for in_place in (False, True)
    ]
    assert arenas == [40_894_464, 28_311_552]
    step = load(EXAMPLES / "gpt2_training_step.json")
    freed = prepared_reuse(step, Preparation(reorder=True, early_updates=True))
    # Of the step whose gradients are freed, not that of one that returns them.
    assert freed.graph.outputs != step.outputs
    assert len(freed.graph.ops) == len(step.ops)


def test_an_order_that_is_given_and_one_that_is_looked_for_are_refused_together() -> None:
    for how in (Preparation(reorder=True, streams=2), Preparation(reorder=True, schedule=Path("x.json"))):
        with pytest.raises(InputError, match="the order of the ops is looked for"):
            prepare(teaching(), how)
