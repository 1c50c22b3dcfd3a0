"""A limit in nodes gives the same plan on any machine."""

from __future__ import annotations

import time

import numpy as np
import pytest

from benchmarks.families import adversarial
from memplan_engine import SolveLimits, make_plan
from memplan_engine.problem import Problem, make_problem
from memplan_engine.strategies import auto
from memplan_engine.strategies.exact import exact_search


def drawn(count: int, seed: int) -> Problem:
    """Return buffers that no order × fit packs to the bound."""
    random = np.random.default_rng(seed)
    start = random.integers(0, count // 2, count)
    length = random.integers(1, count // 3, count)
    size = random.integers(1, 40, count) * 64 + random.integers(0, 2, count) * 16
    return make_problem(start, start + length, size)


@pytest.mark.parametrize("strategy", ["auto", "exact", "search"])
def test_the_same_nodes_give_the_same_plan_on_a_slow_machine(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = drawn(250, 3)
    # Short turns: branch and bound and repair both run several times.
    monkeypatch.setattr(auto, "ALONE_NODES", 3_000)
    monkeypatch.setattr(auto, "FIRST_SLICE_NODES", 1_000)
    first = make_plan(problem, strategy, limits=SolveLimits(nodes=15_000))
    assert not first.optimal, "the problem must not end before the limit"
    # A clock that runs fifty times as fast, and unevenly.
    real, ticks = time.perf_counter, iter(range(10**9))
    monkeypatch.setattr(time, "perf_counter", lambda: real() * 50 + next(ticks) * 0.01)
    for module, name in (
        (auto, "ALONE_SECONDS"), (auto, "ALONE_WITHOUT_RULES"), (auto, "FIRST_SLICE"),
        (exact_search, "SHRINK_SECONDS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 1e-9)
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
    monkeypatch.setattr(exact_search, "SHRINK_SECONDS", 1e-9)
    assert make_plan(problem, "exact", limits=SolveLimits(nodes=50_000)) == first
    monkeypatch.setattr(exact_search, "SHRINK_NODES", 0)
    assert len(make_plan(problem, "exact", limits=SolveLimits(nodes=50_000)).bound.core) == len(problem)


def test_another_seed_gives_another_search() -> None:
    problem = drawn(250, 3)
    offsets = {
        make_plan(problem, "search", limits=SolveLimits(nodes=5_000, seed=seed)).offsets.tobytes()
        for seed in range(3)
    }
    assert len(offsets) == 3


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
