"""Small graphs with banks, and the best plans of them with moves by looking at all."""

from __future__ import annotations

from itertools import pairwise, permutations, product

import numpy as np

from memplan_engine.banked.banked_plan import with_banks
from memplan_engine.banks.bank_values import Bank
from memplan_engine.graph import Graph, Op
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import Problem
from tests.support.graphs import make_graph

Stay = tuple[int, int, int, int]
"""Bank, first step and end of a stay on the time axis with copies, and the buffer."""


def drawn_graph(seed: int) -> Graph:
    """A chain of a few ops, each of which reads what the one before made, and some what was made at first."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 6))
    sizes, ops = {"x": 1}, []
    for index in range(count):
        made = [f"t{name}" for name in range(index)]
        early = made[:1] if index in (1, 2, count - 1) else []
        reads = {*made[-1:], *early, *(name for name in made[1:2] if rng.random() < 0.4)} or {"x"}
        sizes[f"t{index}"] = int(rng.integers(1, 4 + index))
        ops.append(Op(f"op{index}", "op", tuple(sorted(reads)), (f"t{index}",)))
    return make_graph(ops, sizes, inputs=("x",), outputs=(f"t{count - 1}",))


def drawn_moves(seed: int) -> Problem:
    """Its buffers, with an SRAM that mostly has room for what any one op accesses, and DRAM that mostly has
    room for all."""
    rng = np.random.default_rng(1000 + seed)
    graph = drawn_graph(seed)
    problem = to_problem(graph, alignment=int(rng.choice([1, 1, 2])))
    last = Bank("dram", int(rng.integers(6, 14)) if rng.random() < 0.3 else None)
    sizes = dict(zip(problem.names, problem.size.tolist(), strict=True))
    most = max(sum(sizes.get(name, 0) for name in (*op.inputs, *op.outputs)) for op in graph.ops)
    own = [Bank("sram", max(2, most + int(rng.integers(-2, 2)))), last]
    if rng.random() < 0.5:
        own = [Bank(bank.name, bank.capacity, 1, int(rng.integers(1, 5))) for bank in own]
    return with_banks(problem, own)


def best_with_moves(problem: Problem) -> int | None:
    """The least traffic of all plans with moves, None where there is none: each buffer in each bank at each
    step of its life, and each packing of that."""
    assert problem.banks is not None
    banks = range(len(problem.banks))
    ways = [list(product(banks, repeat=life)) for life in (problem.end - problem.start).tolist()]
    ranked = [sorted((_cost(problem, row, way), way) for way in own) for row, own in enumerate(ways)]
    rest = [sum(own[0][0] for own in ranked[row:]) for row in range(len(ranked) + 1)]
    best: int | None = None
    loads = np.zeros((len(problem.banks), problem.steps), dtype=np.int64)
    room = np.array([[99 if bank.capacity is None else bank.capacity] for bank in problem.banks.banks])

    def descend(chosen: list[tuple[int, ...]], paid: int) -> None:
        nonlocal best
        row = len(chosen)
        if row == len(ranked):
            best = paid if _packs(problem, _stays(problem, chosen)) else best
            return
        steps = np.arange(int(problem.start[row]), int(problem.end[row]))
        for cost, way in ranked[row]:
            if best is not None and paid + cost + rest[row + 1] >= best:
                break
            loads[list(way), steps] += problem.size[row]
            if (loads <= room).all():
                descend([*chosen, way], paid + cost)
            loads[list(way), steps] -= problem.size[row]

    descend([], 0)
    return best


def _cost(problem: Problem, row: int, way: tuple[int, ...]) -> int:
    """Each use and each end of a copy, in bytes times what a byte costs there."""
    assert problem.banks is not None
    assert problem.origin is not None
    size, name, weights = int(problem.size[row]), problem.names[row], problem.banks.weights
    total = 0
    for step, op in enumerate(problem.origin.graph.ops):
        uses = (*op.inputs, *op.outputs).count(name)
        total += uses * size * weights[way[step - int(problem.start[row])]] if uses else 0
    for one, other in pairwise(way):
        total += size * (weights[one] + weights[other]) if one != other else 0
    return total


def _stays(problem: Problem, ways: list[tuple[int, ...]]) -> list[Stay]:
    """The stays with a step for each copy: those to a slower bank first, then those to a faster one, each in
    the order of the buffers."""
    assert problem.banks is not None
    weights = problem.banks.weights
    events = []
    for row, way in enumerate(ways):
        for place in range(1, len(way)):
            one, other = way[place - 1], way[place]
            if one != other:
                events.append((int(problem.start[row]) + place, weights[one] - weights[other], row))
    events.sort()
    clock, at, op_step = 0, {}, {}
    for step in range(problem.steps):
        for event in events:
            if event[0] == step:
                at[event[2], step], clock = clock, clock + 1
        op_step[step], clock = clock, clock + 1
    stays = []
    for row, way in enumerate(ways):
        first = int(problem.start[row])
        begin = op_step[first]
        for place in range(1, len(way)):
            copied = at.get((row, first + place))
            if copied is not None:
                stays.append((way[place - 1], begin, copied + 1, row))
                begin = copied
        stays.append((way[-1], begin, op_step[first + len(way) - 1] + 1, row))
    return stays


def _packs(problem: Problem, stays: list[Stay]) -> bool:
    assert problem.banks is not None
    for bank, own in enumerate(problem.banks.banks):
        mine = [stay for stay in stays if stay[0] == bank]
        if own.capacity is not None and not any(
            _stacks(problem, order, own.capacity) for order in permutations(mine)
        ):
            return False
    return True


def _stacks(problem: Problem, order: tuple[Stay, ...], capacity: int) -> bool:
    placed: list[tuple[int, int, int, int]] = []
    for _, start, end, row in order:
        size, unit, offset = int(problem.size[row]), int(problem.alignment[row]), 0
        while any(
            s < end and start < e and low < offset + size and offset < high for s, e, low, high in placed
        ):
            offset += unit
        if offset + size > capacity:
            return False
        placed.append((start, end, offset, offset + size))
    return True
