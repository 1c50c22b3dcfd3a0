"""Parts of an order: the bytes are those of the whole, and any order of the part fits into it."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.kernels.order.greedy import greedy_order
from memplan_engine.rewrites.order.order_problem import order_problem
from memplan_engine.rewrites.order.order_search import OrderSearch
from memplan_engine.rewrites.order.windows import FIRST, window
from memplan_engine.rewrites.reuse.in_place import take_over
from memplan_engine.strategies.base import SolveLimits
from tests.rewrites.order_graphs import layered_graph, random_graph


@given(st.integers(0, 2**32 - 1), st.integers(1, 14), st.booleans())
def test_a_part_has_the_bytes_of_the_whole(seed: int, ops: int, in_place: bool) -> None:
    graph, draw = random_graph(seed, ops), Random(seed)
    problem = order_problem(graph, take_over=take_over(graph) if in_place else None)
    order = greedy_order(problem.arrays, 0, 5.0, seed, False)
    first = draw.randrange(len(order))
    last = draw.randint(first + 1, len(order))
    part = window(problem, order, first, last)
    given_order = np.arange(len(part.units))
    assert part.live(given_order)[1:].tolist() == problem.live(order)[first:last].tolist()
    other = greedy_order(part.arrays, 0, 5.0, seed + 1, False)
    assert other[0] == FIRST
    whole = np.concatenate([order[:first], order[first:last][other[1:] - 1], order[last:]])
    live = problem.live(whole)
    assert live[first:last].tolist() == part.live(other)[1:].tolist()
    assert live[last:].tolist() == problem.live(order)[last:].tolist()


def test_the_worst_steps_are_searched_one_by_one() -> None:
    problem, limits = order_problem(layered_graph(3, 200, 20)), SolveLimits(nodes=100_000)
    search = OrderSearch(problem, limits)
    with limits.running():
        search._rules()
        search._cut(seconds=1.0)
        before = search.peak
        search._search_windows(2.0)
    assert search.peak < before
    assert search.found_by == "windows"
    assert problem.peak(search.order) == search.peak
