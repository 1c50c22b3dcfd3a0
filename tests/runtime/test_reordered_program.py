"""A program in another order: the same bits, the bytes that were predicted, and no order that is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from memplan_engine import InputError, compare_run, insert_slab, load_program, make_plan, reorder
from memplan_engine.runtime.reordered_program import reordered_program
from memplan_engine.strategies.base import SolveLimits
from tests.support.runtime import Calls, same_bits

NODES = 20_000


def branches(linear: Any, x: torch.Tensor) -> torch.Tensor:
    """Three large values that are each summed up: made one behind the other they need half as much."""
    a, b, c = x.repeat(64, 1), x.repeat(64, 1), x.repeat(64, 1)
    return a.exp().sum() + b.exp().sum() + c.exp().sum()


def with_writes(linear: Any, x: torch.Tensor) -> Any:
    """A write through a view, parts of an op with several outputs, random numbers and sizes."""
    y = x * 2
    y[0].add_(1)
    parts = torch.split(y, [1, x.shape[0] - 1])
    noise = torch.rand_like(parts[1])
    big = x.repeat(32, 1).relu()
    more = torch.rand_like(x)
    values, places = torch.topk(y, 2)
    return parts[0].sum(), parts[1] * noise, big.sum(), more + x.shape[1], values, places


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(32.0).reshape(4, 8).sin()


def test_branches_run_one_behind_the_other_with_the_bits_and_the_bytes_predicted(x: torch.Tensor) -> None:
    model = Calls(branches)
    program = load_program(model, (x,))
    result = reorder(program.graph, SolveLimits(nodes=NODES))
    # Each is 64 × 4 × 8 floats, 8,192 bytes. Before: all three, and the first result. After: the last one and
    # its result, beside the sum of the others.
    assert (result.live_before, result.live_after) == (4 * 8192, 2 * 8192 + 4)
    other = reordered_program(program, result.graph)
    run = compare_run(other, (x,), eager=model)
    assert run.equality.exact
    assert run.dispatch_peak == result.live_after
    assert run.dispatch.tolist() == run.predicted.tolist()
    # The program itself has stayed as it was.
    assert compare_run(program, (x,), eager=model).dispatch_peak == result.live_before
    assert [node.name for node in other.module.graph.nodes] != [n.name for n in program.module.graph.nodes]


def test_it_runs_in_the_slab_of_its_plan(x: torch.Tensor) -> None:
    program = load_program(Calls(branches), (x,))
    other = reordered_program(program, reorder(program.graph, SolveLimits(nodes=NODES)).graph)
    plan = make_plan(other.graph, "greedy_by_size")
    assert plan.arena_bytes < make_plan(program.graph, "greedy_by_size").arena_bytes
    module = insert_slab(other, plan, policy="all")
    assert same_bits(other.with_module(module).run((x,)), program.run((x,)))


def random_orders(program: Any, seeds: int) -> list[Any]:
    """Graphs of the same ops in drawn orders that keep what must be kept."""
    import random

    from memplan_engine.schedule import dependencies

    needs = dependencies(program.graph)
    several = []
    for seed in range(seeds):
        draw = random.Random(seed)
        done: list[int] = []
        while len(done) < len(needs):
            ready = [op for op in range(len(needs)) if op not in done and set(needs[op]) <= set(done)]
            done.append(draw.choice(ready))
        several.append(replace(program.graph, ops=tuple(program.graph.ops[op] for op in done)))
    return several


def test_every_order_that_is_kept_gives_the_same_bits(x: torch.Tensor) -> None:
    model = Calls(with_writes)
    program = load_program(model, (x.clone(),))
    torch.manual_seed(3)
    expected = model(x.clone())
    orders = random_orders(program, 30)
    assert len({tuple(op.name for op in graph.ops) for graph in orders}) > 20
    for graph in orders:
        other = reordered_program(program, graph)
        torch.manual_seed(3)
        assert same_bits(other.run((x.clone(),)), expected)
        run = compare_run(other, (x.clone(),))
        assert run.dispatch.tolist() == run.predicted.tolist()


def swapped(graph: Any, first: str, second: str) -> Any:
    at = {op.name: index for index, op in enumerate(graph.ops)}
    ops = list(graph.ops)
    ops[at[first]], ops[at[second]] = ops[at[second]], ops[at[first]]
    return replace(graph, ops=tuple(ops))


def test_an_order_that_is_wrong_is_refused_before_it_runs(x: torch.Tensor) -> None:
    program = load_program(Calls(with_writes), (x,))
    names = [op.name for op in program.graph.ops]
    random = [name for name in names if name.startswith("rand_like")]
    written = next(op.name for op in program.graph.ops if op.mutates)
    for first, second in ((names[0], names[-1]), (random[0], random[1]), (written, names[-2])):
        with pytest.raises(InputError, match="the order"):
            reordered_program(program, swapped(program.graph, first, second))
    with pytest.raises(InputError, match="the order"):
        reordered_program(program, replace(program.graph, ops=program.graph.ops[:-1]))


def is_together(graph: Any) -> bool:
    inside = ["." in op.name for op in graph.ops]
    return sum(one != other for one, other in pairwise([False, *inside, False])) == 2


def test_ops_of_a_block_that_sets_a_mode_stay_together(x: torch.Tensor) -> None:
    def model(linear: Any, x: torch.Tensor) -> Any:
        y = (x * 2).exp()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x @ x.T
        return y, z

    program = load_program(Calls(model), (x,))
    kept = [graph for graph in random_orders(program, 20) if is_together(graph)]
    assert 0 < len(kept) < 20
    for graph in random_orders(program, 20):
        if graph in kept:
            assert same_bits(reordered_program(program, graph).run((x,)), program.run((x,)))
        else:
            with pytest.raises(InputError, match="one block"):
                reordered_program(program, graph)
