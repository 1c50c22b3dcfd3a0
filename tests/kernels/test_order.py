"""The kernels of order against plain Python: flows, walks and their way back, what runs for nothing."""

from __future__ import annotations

from collections import deque
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import load
from memplan_engine.graph import Graph, Op
from memplan_engine.kernels.order.flow import Network, push_flow
from memplan_engine.kernels.order.greedy import greedy_order, move_blocks
from memplan_engine.kernels.order.walk import (
    LIVE,
    PEAK,
    READY,
    RUN,
    begin_walk,
    replay_order,
    run,
    run_free,
    take_back,
)
from memplan_engine.rewrites.order.cut_bound import Cuts
from memplan_engine.rewrites.order.order_problem import order_problem
from tests import ROOT
from tests.rewrites.order_graphs import layered_graph, random_graph
from tests.support.graphs import make_graph

NOBODY = np.zeros(1, np.bool_)
seeds = st.integers(0, 2**32 - 1)


def network_of(nodes: int, arcs: list[tuple[int, int, int]]) -> Network:
    """Arcs as (tail, head, room), each with one back."""
    both = [(tail, head, room) for tail, head, room in arcs] + [(head, tail, 0) for tail, head, _ in arcs]
    order = sorted(range(len(both)), key=lambda arc: both[arc][0])
    place = {arc: at for at, arc in enumerate(order)}
    back = [place[(arc + len(arcs)) % len(both)] for arc in order]
    counts = np.bincount([both[arc][0] for arc in order], minlength=nodes)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    heads, rooms = ([both[arc][at] for arc in order] for at in (1, 2))
    return Network(starts, np.array(heads, np.int64), np.array(back, np.int64), np.array(rooms, np.int64))


def plain_flow(nodes: int, arcs: list[tuple[int, int, int]], source: int, sink: int) -> int:
    """Edmonds and Karp's, over a matrix."""
    room = [[0] * nodes for _ in range(nodes)]
    for tail, head, most in arcs:
        room[tail][head] += most
    total = 0
    while True:
        came_from, queue = {source: source}, deque([source])
        while queue:
            node = queue.popleft()
            for to in range(nodes):
                if room[node][to] and to not in came_from:
                    came_from[to] = node
                    queue.append(to)
        if sink not in came_from:
            return total
        path, node = [], sink
        while node != source:
            path.append((came_from[node], node))
            node = came_from[node]
        most = min(room[tail][head] for tail, head in path)
        for tail, head in path:
            room[tail][head] -= most
            room[head][tail] += most
        total += most


def drawn_arcs(draw: Random, nodes: int) -> list[tuple[int, int, int]]:
    pairs = [(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(3 * nodes)]
    return [(tail, head, draw.randint(0, 9)) for tail, head in pairs if tail != head]


@given(seeds, st.integers(2, 9))
def test_the_flow_is_that_of_edmonds_and_karp(seed: int, nodes: int) -> None:
    arcs = drawn_arcs(Random(seed), nodes)
    inside, outside = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
    inside[0] = outside[-1] = True
    expected = plain_flow(nodes, arcs, 0, nodes - 1)
    assert push_flow(network_of(nodes, arcs), inside, outside, 10**9) == expected
    # It ends early, and goes on from there.
    net = network_of(nodes, arcs)
    some = push_flow(net, inside, outside, expected // 2)
    assert some == expected // 2
    assert some + push_flow(net, inside, outside, 10**9) == expected


@given(seeds, st.integers(3, 9))
def test_a_flow_goes_on_when_more_nodes_are_inside(seed: int, nodes: int) -> None:
    arcs = drawn_arcs(Random(seed), nodes)
    inside, outside = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
    inside[0] = outside[-1] = True
    net = network_of(nodes, arcs)
    first = push_flow(net, inside, outside, 10**9)
    inside[1] = True
    endless = [(nodes, 0, 10**6), (nodes, 1, 10**6)]
    assert first + push_flow(net, inside, outside, 10**9) == plain_flow(
        nodes + 1, arcs + endless, nodes, nodes - 1
    )


@given(seeds, st.integers(1, 12))
def test_a_walk_that_is_taken_back_is_where_it_was(seed: int, ops: int) -> None:
    o, draw = order_problem(random_graph(seed, ops)).arrays, Random(seed)
    walk = begin_walk(o)
    for _ in range(draw.randrange(len(o.out))):
        run(o, walk, int(walk.ready[draw.randrange(int(walk.counts[READY]))]))
    state = (walk.waits.copy(), walk.left.copy(), walk.counts.copy(), set(walk.ready[: walk.counts[READY]]))
    peak = int(walk.counts[PEAK])
    run(o, walk, int(walk.ready[draw.randrange(int(walk.counts[READY]))]))
    take_back(o, walk, peak)
    assert (walk.waits == state[0]).all()
    assert (walk.left == state[1]).all()
    assert (walk.counts == state[2]).all()
    assert set(walk.ready[: walk.counts[READY]]) == state[3]


@given(seeds, st.integers(1, 12), st.integers(0, 30))
def test_what_runs_for_nothing_fits_and_leaves_no_more_live(seed: int, ops: int, limit: int) -> None:
    o = order_problem(random_graph(seed, ops)).arrays
    walk = begin_walk(o)
    run(o, walk, 0)
    live, limit = int(walk.counts[LIVE]), max(limit, int(walk.counts[PEAK]))
    run_free(o, walk, limit)
    assert walk.counts[LIVE] <= live
    assert walk.counts[PEAK] <= limit
    order = walk.order[: walk.counts[RUN]]
    assert replay_order(o, order).max() == walk.counts[PEAK]


@pytest.mark.parametrize(("limit", "ran"), [(8, ["a", "up", "down"]), (7, ["a"])])
def test_a_hill_is_climbed_as_a_whole_or_not_at_all(limit: int, ran: list[str]) -> None:
    # `up` makes 5 bytes of the 3 that `late` needs as well, `down` makes 0 of them: 8 while both are live.
    ops = (
        Op("a", "mix", ("x",), ("t",)),
        Op("up", "mix", ("t",), ("u",)),
        Op("down", "mix", ("u",), ("v",)),
        Op("late", "mix", ("t", "v"), ("y",)),
    )
    sizes = {"x": 1, "t": 3, "u": 5, "v": 0, "y": 9}
    problem = order_problem(make_graph(ops, sizes, inputs=("x",), outputs=("y",)), merge=False)
    walk = begin_walk(problem.arrays)
    run(problem.arrays, walk, 0)
    run_free(problem.arrays, walk, limit)
    assert [ops[unit].name for unit in walk.order[: walk.counts[RUN]]] == ran


@given(seeds, st.integers(1, 30))
def test_greedy_orders_and_moved_blocks_are_orders(seed: int, ops: int) -> None:
    problem = order_problem(layered_graph(seed, ops, 6))
    o, n = problem.arrays, len(problem.units)
    for noise, free in ((0.0, False), (0.5, True)):
        order = greedy_order(o, 0, noise, seed, free)
        assert sorted(order.tolist()) == list(range(n))
        assert len(problem.live(order)) == n
        moved = move_blocks(o, order, 0, 50, seed, NOBODY)
        assert len(problem.live(moved)) == n
        assert problem.peak(moved) <= problem.peak(order)


@pytest.mark.parametrize("name", ["gpt2", "bert_training_min_cut"])
def test_the_flows_of_examples_are_those_of_or_tools(name: str) -> None:
    max_flow = pytest.importorskip("ortools.graph.python.max_flow")
    graph = load(ROOT / "example_graphs" / f"{name}.json")
    assert isinstance(graph, Graph)
    problem = order_problem(graph)
    cuts = Cuts(problem)
    net, most = cuts.network, 2**50
    nodes = len(net.arcs_of) - 1
    tails, forward = np.repeat(np.arange(nodes), np.diff(net.arcs_of)), cuts.rooms > 0
    for unit in range(0, len(problem.units), 10):
        net.room[:] = cuts.rooms
        inside, outside = cuts.sides(unit)
        begins, ends = np.flatnonzero(inside), np.flatnonzero(outside)
        theirs = max_flow.SimpleMaxFlow()
        theirs.add_arcs_with_capacity(
            np.concatenate([tails[forward], np.full(len(begins), nodes), ends]),
            np.concatenate([net.head[forward], begins, np.full(len(ends), nodes + 1)]),
            np.concatenate([np.minimum(cuts.rooms[forward], most), np.full(len(begins) + len(ends), most)]),
        )
        # Without predecessors or users there is nothing that OR-tools would know as a node.
        if len(begins):
            assert theirs.solve(nodes, nodes + 1) == theirs.OPTIMAL
            assert push_flow(net, inside, outside, 2**62) == theirs.optimal_flow()


def test_an_order_in_which_a_unit_runs_too_early_has_no_live_bytes() -> None:
    problem = order_problem(layered_graph(3, 5, 2))
    assert len(problem.live([4, 3, 2, 1, 0])) == 0


@pytest.mark.parametrize("seed", range(5))
def test_each_cut_is_below_what_any_order_has(seed: int) -> None:
    problem = order_problem(layered_graph(seed, 25, 6))
    cuts = Cuts(problem)
    bounds = [cuts.bound(unit) for unit in range(len(problem.units))]
    for draw in range(20):
        order = greedy_order(problem.arrays, 0, 2.0, draw, False)
        for unit, live in zip(order.tolist(), problem.live(order).tolist(), strict=True):
            assert bounds[unit] <= live
