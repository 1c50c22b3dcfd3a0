"""Orders and their proofs: against all orders of small graphs, and on the example graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memplan_engine import SolveLimits, check_reorder, find_peak, load, reorder
from memplan_engine.graph import Graph, Op
from memplan_engine.rewrites.order.both_ends import with_ending
from memplan_engine.rewrites.order.cut_bound import Cuts
from memplan_engine.rewrites.order.heuristics import INDUCTOR, orders_by_rules
from memplan_engine.rewrites.order.order_problem import order_problem
from memplan_engine.rewrites.order.order_search import OrderProgress, ProvedBy
from memplan_engine.rewrites.reuse import check_reuse, reuse, reused_problem
from memplan_engine.rewrites.reuse.in_place import take_over
from tests import ROOT
from tests.rewrites.brute_force import judged, peak_of
from tests.rewrites.order_graphs import layered_graph, least_peak, orders, random_graph
from tests.support.graphs import make_graph

seeds = st.integers(0, 2**32 - 1)
EXAMPLES = ROOT / "example_graphs"


def example_graph(name: str) -> Graph:
    loaded = load(EXAMPLES / name)
    assert isinstance(loaded, Graph)
    return loaded


@given(seeds, st.integers(1, 11), st.booleans())
@example(195, 10, True)  # what leads to an op that writes in place
def test_no_order_is_better(seed: int, ops: int, in_place: bool) -> None:
    graph = random_graph(seed, ops)
    assert judged(graph, in_place) == ""
    assert reorder(graph, SolveLimits(), in_place=in_place).proved


@given(seeds, st.integers(1, 9), st.booleans(), st.integers(0, 20))
def test_no_order_within_a_limit_is_lost_by_placing_the_end(
    seed: int, ops: int, in_place: bool, limit: int
) -> None:
    graph = random_graph(seed, ops)
    over = take_over(graph) if in_place else None
    arrays = with_ending(order_problem(graph, merge=False, take_over=over).arrays, limit)
    before = [
        set(arrays.before[arrays.before_of[op] : arrays.before_of[op + 1]].tolist()) for op in range(ops)
    ]
    assert max(limit, least_peak(graph, over, before)) == max(limit, least_peak(graph, over))


@given(seeds, st.integers(1, 6))
def test_the_live_bytes_of_every_order_are_those_of_the_pipeline(seed: int, ops: int) -> None:
    graph = random_graph(seed, ops)
    problem = order_problem(graph, merge=False)
    for order in orders(graph):
        reordered = replace(graph, ops=tuple(graph.ops[index] for index in order))
        assert problem.peak(order) == peak_of(reordered)
        assert check_reorder(graph, reordered) == ()


@given(seeds, st.integers(2, 7), st.randoms(use_true_random=False))
def test_the_checker_takes_an_order_if_and_only_if_it_keeps_the_dependencies(
    seed: int, ops: int, draw: object
) -> None:
    graph = random_graph(seed, ops)
    allowed = {tuple(order) for order in orders(graph)}
    order = list(range(ops))
    draw.shuffle(order)  # type: ignore[attr-defined]
    reordered = replace(graph, ops=tuple(graph.ops[index] for index in order))
    assert (check_reorder(graph, reordered) == ()) == (tuple(order) in allowed)


@given(seeds, st.integers(1, 9))
def test_no_cut_of_an_op_passes_the_best_order(seed: int, ops: int) -> None:
    graph = random_graph(seed, ops)
    problem = order_problem(graph)
    cuts = Cuts(problem)
    least = least_peak(graph)
    assert all(cuts.bound(unit) <= least for unit in range(len(problem.units)))


@given(seeds, st.integers(1, 20), st.booleans())
def test_units_need_what_their_ops_need(seed: int, ops: int, in_place: bool) -> None:
    graph = random_graph(seed, ops)
    table = take_over(graph) if in_place else None
    problem, single = (order_problem(graph, merge=merge, take_over=table) for merge in (True, False))
    assert sorted(op for unit in problem.units for op in unit) == list(range(ops))
    assert all(main in unit for main, unit in zip(problem.main, problem.units, strict=True))
    for _, order in orders_by_rules(problem.arrays):
        assert problem.peak(order) == single.peak(problem.ops_of(order.tolist()))


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_of_others_are_orders(seed: int) -> None:
    problem = order_problem(layered_graph(seed, 40, 8))
    found = dict(orders_by_rules(problem.arrays))
    assert found.keys() > INDUCTOR.keys()
    for order in found.values():
        assert len(problem.live(order)) == len(problem.units)


def test_a_large_random_graph_ends_with_its_limit_and_is_no_worse() -> None:
    graph = layered_graph(7, 300, 60)
    heard: list[OrderProgress] = []

    def tell(progress: OrderProgress) -> bool:
        heard.append(progress)
        return progress.peak_bytes < heard[0].peak_bytes

    result = reorder(graph, SolveLimits(nodes=50_000), tell)
    assert peak_of(result.graph) == result.live_after == heard[-1].peak_bytes
    assert result.bound_bytes <= result.live_after < result.live_before
    assert result.bound_bytes == heard[-1].bound_bytes
    assert [each.peak_bytes for each in heard] == sorted((each.peak_bytes for each in heard), reverse=True)
    assert [each.bound_bytes for each in heard] == sorted(each.bound_bytes for each in heard)
    assert check_reorder(graph, result.graph, result.certificate) == ()


def test_a_stopped_search_gives_the_order_as_it_is() -> None:
    graph, limits = layered_graph(7, 30, 8), SolveLimits()
    limits.cancel()
    result = reorder(graph, limits)
    assert result.graph == graph
    assert result.saved_bytes == 0


def test_a_graph_without_ops_needs_nothing() -> None:
    graph = make_graph((), {"x": 4}, inputs=("x",), outputs=("x",))
    result = reorder(graph, SolveLimits())
    assert (result.live_after, result.bound_bytes, result.certificate, result.proved) == (0, 0, None, True)
    assert check_reorder(graph, result.graph) == ()


def test_two_branches_by_hand() -> None:
    # Both branches go up to 10 bytes and come down to 1; both up together are 20, one after the other 11.
    ops = (
        Op("up a", "mix", ("x",), ("a",)),
        Op("up b", "mix", ("x",), ("b",)),
        Op("down a", "mix", ("a",), ("c",)),
        Op("down b", "mix", ("b",), ("d",)),
        Op("join", "mix", ("c", "d"), ("y",)),
    )
    graph = make_graph(ops, {"x": 5, "a": 10, "b": 10, "c": 1, "d": 1, "y": 1}, inputs=("x",), outputs=("y",))
    result = reorder(graph, SolveLimits())
    assert (result.live_before, result.live_after, result.bound_bytes) == (21, 12, 12)
    # One cut cannot tell: while b comes down, a may not have begun. Whichever comes down last has the other's
    # byte beside its own 11.
    assert result.proved_by is ProvedBy.CASES
    assert check_reorder(graph, result.graph, result.certificate) == ()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("gpt2.json", 53_477_376, 40_894_464),
        ("bert_training_min_cut.json", 598_494_348, 573_325_452),
        ("gpt2_training_step.json", 579_726_340, 577_777_668),
        ("resnet50.json", 9_633_792, 9_633_792),
        ("llama_7b.json", 76_546_048, 76_546_048),
        ("squeezenet.onnx", 6_308_352, 6_308_352),
        ("mobilenet_v2_tflite.json", 6_021_120, 6_021_120),
    ],
)
def test_examples_are_proved_by_one_cut(name: str, before: int, after: int) -> None:
    graph = example_graph(name)
    result = reorder(graph, SolveLimits(nodes=50_000))
    assert (result.live_before, result.live_after, result.bound_bytes) == (before, after, after)
    assert result.proved_by is ProvedBy.CUT
    assert check_reorder(graph, result.graph, result.certificate) == ()
    assert peak_of(graph) == before
    assert peak_of(result.graph) == after
    if before == after:
        assert result.graph == graph


def test_gpt2_gains_from_order_and_writes_in_place_together() -> None:
    graph = example_graph("gpt2.json")
    result = reorder(graph, SolveLimits(nodes=50_000), in_place=True)
    reused = reuse(result.graph)
    assert find_peak(reused_problem(reused)).nbytes == result.live_after == result.bound_bytes == 28_311_552
    assert check_reuse(result.graph, reused.graph) == ()
    assert check_reorder(graph, result.graph, result.certificate) == ()
    # Each alone comes to 40.9 MB of 53.5.
    assert find_peak(reused_problem(reuse(graph))).nbytes == 40_894_464
    assert reorder(graph, SolveLimits(nodes=50_000)).live_after == 40_894_464
