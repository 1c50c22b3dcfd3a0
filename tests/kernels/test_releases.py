"""Schedules that are repaired at their worst steps: by hand, and on graphs of layers against all choices."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine.graph import Graph, Op
from memplan_engine.kernels.recompute.lazily import MOST_RUNS
from memplan_engine.kernels.recompute.releases import release, repair, tighten
from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from memplan_engine.rewrites.recompute.recompute_problem import RecomputeProblem, recompute_problem
from memplan_engine.rewrites.recompute.recomputed_graph import recomputed_graph
from tests.rewrites.order_graphs import random_graph
from tests.support.graphs import make_graph

STOP = np.zeros(1, np.bool_)


def forth_and_back(sizes: list[int]) -> Graph:
    """A layer for each size, whose result its gradient reads together with that of the layer behind it."""
    n = len(sizes)
    ops = [Op(f"f{i}", "mix", (f"a{i - 1}" if i else "x",), (f"a{i}",)) for i in range(n)]
    for i in reversed(range(n)):
        read = (f"a{i}", *([f"g{i + 1}"] if i < n - 1 else []))
        ops += [Op(f"b{i}", "mix", read, (f"g{i}",))]
    nbytes = {"x": 1} | {f"a{i}": size for i, size in enumerate(sizes)} | {f"g{i}": 1 for i in range(n)}
    return make_graph(tuple(ops), nbytes, inputs=("x",), outputs=("g0",))


def as_is(problem: RecomputeProblem) -> Ints:
    n = len(problem.cost)
    sequence = np.zeros(MOST_RUNS * n + 1, np.int64)
    sequence[:n] = np.arange(n)
    return sequence


def extra(problem: RecomputeProblem, sequence: Ints) -> int:
    return int(problem.cost[sequence].sum()) - problem.total


def problem_of(graph: Graph, nanoseconds: list[int]) -> RecomputeProblem:
    return recompute_problem(graph, [each * 1e-9 for each in nanoseconds])


def released(problem: RecomputeProblem, capacity: int) -> Ints | None:
    sequence, n = as_is(problem), len(problem.cost)
    given = (problem.again, problem.spoiled, problem.cost, capacity)
    count = release(problem.arrays, sequence, n, *given, 0.0, STOP)
    return None if count < 0 else sequence[:count].copy()


def test_what_lowers_most_for_its_time_goes_first() -> None:
    """Live are 10, 20, 30, 31, 22 and 12 bytes, 20 more than 21 in all. What the first layer has made would
    lower all of that, for 9 ns; what the second has made 10 of it, at the worst step, for 2."""
    problem = problem_of(forth_and_back([10, 10, 10]), [9, 2, 5, 1, 1, 1])
    found = released(problem, 21)
    assert found is not None
    # Then the first has to go as well, and is made again for the second.
    assert found.tolist()[:6] == [0, 1, 2, 3, 0, 1]
    # Nothing fits in less than one layer, what it is made from and a gradient.
    assert released(problem, 15) is None


def test_what_runs_again_for_nothing_is_left_out_dearest_first() -> None:
    problem = problem_of(forth_and_back([10, 10, 10]), [9, 2, 5, 1, 1, 1])
    sequence = as_is(problem)
    sequence[:8] = [0, 1, 2, 3, 1, 4, 0, 5]
    count = tighten(problem.arrays, sequence, 8, problem.cost, 21, STOP)
    assert sequence[:count].tolist() == [0, 1, 2, 3, 4, 0, 5]
    count = tighten(problem.arrays, sequence, count, problem.cost, 31, STOP)
    assert sequence[:count].tolist() == [0, 1, 2, 3, 4, 5]


def least(problem: RecomputeProblem, graph: Graph, capacity: int, most: int) -> int | None:
    """The least time of all ways to run at most `most` layers again, each right before some later op."""
    n = len(problem.cost)
    places = [(op, at) for op in range(n // 2) for at in range(op + 1, n)]
    best: int | None = None
    for several in range(most + 1):
        for chosen in combinations(places, several):
            sequence = []
            for step in range(n):
                sequence += [op for op, at in chosen if at == step] + [step]
            if peak_in_order(recomputed_graph(graph, sequence)) <= capacity:
                time = extra(problem, np.array(sequence))
                best = time if best is None else min(best, time)
    return best


def test_repairs_find_the_least_of_all_ways_on_small_graphs() -> None:
    same = several = 0
    for seed in range(12):
        draw = Random(seed)
        graph = forth_and_back([draw.randint(2, 20) for _ in range(4)])
        problem = problem_of(graph, [draw.randint(1, 9) for _ in graph.ops])
        capacity = int(draw.uniform(0.6, 0.95) * peak_in_order(graph))
        expected, found = least(problem, graph, capacity, 3), released(problem, capacity)
        if expected is None:
            continue
        several += 1
        if found is None:
            continue
        sequence, count = as_is(problem), len(found)
        sequence[:count] = found
        given_ = (problem.again, problem.spoiled, problem.cost, capacity)
        count = repair(problem.arrays, sequence, count, *given_, 64, 0, STOP)
        assert extra(problem, sequence[:count]) <= extra(problem, found)
        same += extra(problem, sequence[:count]) <= expected
    assert several > 5
    assert same >= several - 1


@given(st.integers(0, 2**32), st.integers(2, 12), st.floats(0.3, 1))
@settings(deadline=None)
def test_whatever_comes_of_it_is_the_same_graph_within_the_capacity(
    seed: int, ops: int, share: float
) -> None:
    """Writes over storages, random numbers, effects and views among its ops; by the checker of graphs."""
    graph, draw = random_graph(seed, ops), Random(seed)
    problem = problem_of(graph, [draw.randint(0, 9) for _ in graph.ops])
    capacity = int(share * peak_in_order(graph))
    found = released(problem, capacity)
    if found is None:
        return
    sequence, count = as_is(problem), len(found)
    sequence[:count] = found
    given_ = (problem.again, problem.spoiled, problem.cost, capacity)
    count = repair(problem.arrays, sequence, count, *given_, 8, seed % 1000, STOP)
    assert extra(problem, sequence[:count]) <= extra(problem, found)
    for each in (found, sequence[:count]):
        rewritten = recomputed_graph(graph, each.tolist())
        assert check_recompute(graph, rewritten) == []
        assert peak_in_order(rewritten) <= capacity


@pytest.mark.parametrize("seed", range(3))
def test_it_stops(seed: int) -> None:
    problem = problem_of(forth_and_back([10] * 6), [1] * 12)
    stopped = np.ones(1, np.bool_)
    sequence = as_is(problem)
    given_ = (problem.again, problem.spoiled, problem.cost, 35)
    assert release(problem.arrays, sequence, 12, *given_, 0.0, stopped) == -1
    found = released(problem, 35)
    assert found is not None
    sequence[: len(found)] = found
    assert repair(problem.arrays, sequence, len(found), *given_, 10**6, seed, stopped) == len(found)
