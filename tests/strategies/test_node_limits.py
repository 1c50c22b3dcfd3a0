"""A limit in nodes gives the same plan on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import memplan_examples
import numpy as np
import pytest

from benchmarks.families import adversarial
from memplan_engine import (
    SolveLimits,
    advise,
    compare,
    fit_graph,
    fit_into,
    load,
    make_plan,
    reorder,
)
from memplan_engine.problem import Problem, make_problem
from memplan_engine.rewrites.order.order_search import MOVES_NODES
from memplan_engine.rewrites.reuse.transform import savings
from memplan_engine.strategies import auto
from memplan_engine.strategies.base import Placement
from memplan_engine.strategies.exact import exact_search
from tests.rewrites.order_graphs import layered_graph

PAIR = make_problem([0, 0], [1, 1], [3, 4])


def drawn(count: int, seed: int) -> Problem:
    """Return buffers that no order × fit packs to the bound."""
    random = np.random.default_rng(seed)
    start = random.integers(0, count // 2, count)
    length = random.integers(1, count // 3, count)
    size = random.integers(1, 40, count) * 64 + random.integers(0, 2, count) * 16
    return make_problem(start, start + length, size)


def disturb_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the clock run a thousand times as fast, and unevenly."""
    real, ticks = time.perf_counter, iter(range(10**9))
    monkeypatch.setattr(time, "perf_counter", lambda: real() * 1_000 + next(ticks) * 0.01)


@pytest.mark.parametrize("strategy", ["auto", "exact", "search"])
def test_the_same_nodes_give_the_same_plan_on_a_slow_machine(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = drawn(250, 3)
    # Short turns: branch and bound and repair both run several times.
    monkeypatch.setattr(auto, "ALONE_SECONDS", 0.3)
    monkeypatch.setattr(auto, "ALONE_WITHOUT_RULES", 0.3)
    monkeypatch.setattr(auto, "FIRST_SLICE", 0.1)
    first = make_plan(problem, strategy, limits=SolveLimits(nodes=15_000))
    assert not first.optimal, "the problem must not end before the limit"
    disturb_clock(monkeypatch)
    again = make_plan(problem, strategy, limits=SolveLimits(nodes=15_000))
    assert again == first
    assert again.nodes == first.nodes
    assert again.cut_short
    assert first.cut_short


@pytest.mark.parametrize("strategy", ["auto", "exact", "search"])
def test_a_search_visits_at_most_its_nodes(strategy: str) -> None:
    problem = drawn(250, 3)
    plans = [make_plan(problem, strategy, limits=SolveLimits(nodes=nodes)) for nodes in (0, 500, 12_000)]
    assert plans[0].nodes == 0
    for plan, most in zip(plans, (0, 500, 12_000), strict=True):
        assert plan.nodes <= most + 1
    assert plans[2].nodes > 6_000
    arenas = [plan.arena_bytes for plan in plans]
    assert arenas == sorted(arenas, reverse=True)
    assert arenas[2] < arenas[0]


def test_a_core_is_shrunk_within_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = adversarial.no_way_out(2).problem
    first = make_plan(problem, "exact", limits=SolveLimits(nodes=50_000))
    assert first.optimal
    assert len(first.bound.core) == 9 < len(problem)
    monkeypatch.setattr(exact_search, "SHRINK_SECONDS", 0.0)
    assert len(make_plan(problem, "exact", limits=SolveLimits(nodes=50_000)).bound.core) == len(problem)


def test_another_seed_gives_another_search() -> None:
    problem = drawn(250, 3)
    offsets = {
        make_plan(problem, "search", limits=SolveLimits(nodes=5_000, seed=seed)).offsets.tobytes()
        for seed in range(3)
    }
    assert len(offsets) == 3


def ordered() -> object:
    graph = layered_graph(7, 120, 40)
    found = reorder(graph, SolveLimits(nodes=10_000))
    assert not found.proved, "the search must not end before the limit"
    assert found.live_after < found.live_before
    return found.graph, found.bound_bytes, found.states, found.found_by


def fitted() -> object:
    graph = layered_graph(3, 60, 10)
    found = fit_graph(graph, limits=SolveLimits(nodes=5_000))
    assert len(found.stages) == 3
    return [(stage.plan, stage.order and (stage.order.graph, stage.order.states)) for stage in found.stages]


def advised() -> object:
    found = advise(load(memplan_examples.PATH / "gpt2.json"), limits=SolveLimits(nodes=5_000))
    assert found.suggestions
    return [(each.title, each.plan) for each in found.suggestions], found.rejected, found.complete


def changed() -> object:
    plan = make_plan(drawn(80, 5), "greedy_by_size")
    found = fit_into(plan, plan.bound.nbytes * 9 // 10, limits=SolveLimits(nodes=5_000))
    return found.decision.plan, found.suggestions, found.complete


def compared() -> object:
    plans = compare(drawn(120, 3), ["auto", "exact", "search", "naive"], limits=SolveLimits(nodes=3_000))
    assert all(0 < plan.nodes <= 3_001 for plan in plans[:3]), "each search has all of the nodes"
    return plans, [plan.nodes for plan in plans]


def saved() -> object:
    return savings(load(memplan_examples.PATH / "gpt2.json"), limits=SolveLimits(nodes=500))


@pytest.mark.parametrize("work", [ordered, fitted, advised, changed, compared, saved])
def test_no_clock_decides_what_nodes_limit(
    work: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = work()
    disturb_clock(monkeypatch)
    assert work() == first


def test_a_search_for_an_order_stops_at_its_nodes() -> None:
    graph = layered_graph(7, 120, 40)
    for nodes in (0, 500, 5_000):
        limits = SolveLimits(nodes=nodes)
        found = reorder(graph, limits)
        # An exact search may pass its limit by one state a unit.
        assert nodes <= limits.visited <= nodes + MOVES_NODES + 2 * len(graph.ops)
        assert found.live_after <= found.live_before


def test_a_share_counts_its_own_nodes_and_ends_with_its_parent() -> None:
    limits = SolveLimits(nodes=100)
    limits.counter[0] = 30
    share = limits.child(nodes=50)
    other = limits.child()
    assert (limits.nodes_left, share.nodes_left, other.nodes_left) == (70, 50, 70)
    assert other.counts_nodes
    limits.counter[0] = 80
    assert share.stopped
    assert not other.stopped
    limits.counter[0] = 100
    assert other.stopped
    assert SolveLimits().child(nodes=5).child().nodes_left == 5
    assert not SolveLimits().counts_nodes


def test_a_part_has_seconds_or_the_nodes_that_replace_them() -> None:
    assert SolveLimits(9.0).part(0.5).seconds == 0.5
    assert SolveLimits().part(np.inf).seconds is None
    counted = SolveLimits(nodes=100_000).part(0.5, threads=2, seed=3)
    assert (counted.nodes, counted.seconds, counted.threads, counted.seed) == (5_000, None, 2, 3)
    both = SolveLimits(9.0, nodes=100_000).part(0.5)
    assert (both.nodes, both.seconds) == (5_000, 9.0)
    assert SolveLimits(nodes=3_000).part(0.5).nodes_left == 3_000
    counted.count(1_000)
    assert (counted.visited, counted.spent, counted.remaining) == (1_000, 0.1, 0.4)


def test_each_search_has_all_nodes_again_and_ends_with_its_limits() -> None:
    limits = SolveLimits(7.0, 5, 2, nodes=100)
    one, other = limits.again(), limits.again(reports=False)
    assert (one.seconds, one.seed, one.threads, one.nodes) == (7.0, 5, 2, 100)
    one.count(60)
    other.count(100)
    assert (one.nodes_left, other.nodes_left, limits.nodes_left) == (40, 0, 100)
    assert limits.progress().nodes == 160
    one.report(Placement(np.array([0, 3])), PAIR)
    other.report(Placement(np.array([0, 2])), PAIR)
    assert limits.best_bytes == 7
    limits.cancel()
    assert one.stopped
    assert other.stopped
