"""The sweep over time against branch and bound, graphs that it settles, and the peers of the benchmark."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.banks import executorch, usmp
from memplan_engine import load
from memplan_engine.banked.banked_plan import BankBoundKind, traffic_of, with_banks
from memplan_engine.banks.bank_values import Bank
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import Problem, make_problem
from memplan_engine.profile import load_of
from memplan_engine.spilling import bank_sweep
from memplan_engine.spilling.assignment_task import Task, make_task
from memplan_engine.spilling.bank_planner import plan_banks
from memplan_engine.spilling.bank_prices import find_prices
from memplan_engine.spilling.bank_sweep import sweep
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verify.bank_checks import validate_banked
from tests import ROOT
from tests.support.banked import drawn_problem

Groups = list[tuple[int, tuple[int, ...]]]


def cheapest_by_hand(task: Task, groups: Groups) -> int | None:
    """Of all assignments within the capacities by live bytes that have no group together."""
    best = None
    for chosen in product(range(len(task.capacity)), repeat=len(task.cost)):
        bank_of = np.array(chosen)
        fine = task.allowed[np.arange(len(chosen)), bank_of].all()
        fine = fine and bool((task.load(bank_of) <= task.capacity[:, None]).all())
        if fine and not any(all(chosen[row] == bank for row in rows) for bank, rows in groups):
            cost = task.total(bank_of)
            best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(30))
def test_the_sweep_finds_the_cheapest_without_the_groups_that_are_barred(seed: int) -> None:
    rng = np.random.default_rng(seed)
    task = make_task(drawn_problem(seed, banks=2 + seed % 2, most=6))
    if not task.allowed.any(axis=1).all():
        return
    n = len(task.cost)
    groups: Groups = [
        (int(rng.integers(0, len(task.capacity))), tuple(sorted(rng.permutation(n)[: 1 + g % n].tolist())))
        for g in range(seed % 4)
    ]
    limits = SolveLimits()
    prices = find_prices(task, task.dearest, limits, 30)
    expected = cheapest_by_hand(task, groups)
    found = sweep(task, prices, groups, task.dearest + 1, limits)
    assert found is not None
    bank_of, cost = found
    if expected is None:
        assert bank_of is None
        return
    assert cost == expected
    assert bank_of is not None
    assert bool((task.load(bank_of) <= task.capacity[:, None]).all())
    assert sweep(task, prices, groups, expected, limits) == (None, expected)


def test_too_many_states_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank_sweep, "MOST_STATES", 3)
    problem = make_problem([0] * 4, [2] * 4, [1, 2, 3, 4])
    task = make_task(with_banks(problem, [Bank("sram", 5), Bank("dram")]))
    limits = SolveLimits()
    assert sweep(task, find_prices(task, task.dearest, limits, 5), [], task.dearest + 1, limits) is None


def in_two(name: str, share: float) -> Problem:
    """A graph with as many bytes of SRAM as the `share` of its peak, and DRAM."""
    graph = load(ROOT / "example_graphs" / name)
    assert isinstance(graph, Graph)
    problem = to_problem(graph)
    return with_banks(problem, [Bank("sram", int(load_of(problem).peak * share)), Bank("dram")])


@pytest.mark.parametrize(
    ("name", "share", "traffic"),
    [
        ("mobilenet_v2.json", 0.25, 73_229_056),
        ("resnet50.json", 0.5, 67_436_544),
        ("gpt2.json", 0.5, 717_225_984),
    ],
)
def test_graphs_are_proved_and_no_peer_spills_less(name: str, share: float, traffic: int) -> None:
    """The prices alone leave 50 % open for ResNet-50."""
    problem = in_two(name, share)
    plan = plan_banks(problem, limits=SolveLimits(60.0))
    assert (plan.traffic, plan.optimal, plan.bound.kind) == (traffic, True, BankBoundKind.SEARCH)
    report = validate_banked(plan)
    # The validator has a sweep of its own.
    assert (report.valid, report.unchecked) == (True, ())
    assert min(traffic_of(problem, peer(problem)) for peer in (executorch, usmp)) >= traffic


def test_the_peers_place_as_they_say() -> None:
    """By size `b` comes first and fills SRAM; by conflicts `a`, which meets all others, does."""
    problem = make_problem([0, 0, 2, 3], [4, 2, 3, 4], [3, 4, 1, 1], names=["a", "b", "c", "d"])
    banked = with_banks(problem, [Bank("sram", 4), Bank("dram")])
    assert executorch(banked).tolist() == [1, 0, 0, 0]
    assert usmp(banked).tolist() == [0, 1, 0, 0]


@pytest.mark.slow
def test_ten_thousand_buffers_take_seconds() -> None:
    rng = np.random.default_rng(0)
    start = rng.integers(0, 5_000, 10_000)
    problem = make_problem(start, start + 1 + rng.integers(0, 30, 10_000), rng.integers(1, 100, 10_000))
    banked = with_banks(problem, [Bank("sram", 674), Bank("dram")])
    plan = plan_banks(banked, limits=SolveLimits(8.0))
    assert plan.seconds < 30
    assert validate_banked(plan, replay=False).valid
    assert plan.traffic < 1.2 * plan.bound.value
    assert plan.traffic < 0.9 * traffic_of(banked, executorch(banked))
