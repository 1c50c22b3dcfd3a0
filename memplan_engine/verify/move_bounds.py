"""The validator's own proofs of bounds that hold for every plan with moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memplan_engine.banked.banked_plan import BankBound, BankBoundKind, BankedPlan, banks_of
from memplan_engine.banks.bank_values import ANY
from memplan_engine.graph import Role
from memplan_engine.kernels.types import Flags, Ints
from memplan_engine.problem import Problem
from memplan_engine.verify.move_checks import Unmoved, accesses_of, unmoved

NEVER = 2**62
MOST_STATES = 200_000
"""Of all steps together, where a sweep is repeated: a second or two."""


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """The buffers as they were before any copy: lives in steps without copies, bytes, what an accessed byte
    costs in each bank (n, k), where each may live, who may move, and accesses as (buffer, step) → bytes."""

    start: list[int]
    end: list[int]
    size: list[int]
    weight: list[list[int]]
    allowed: Flags
    moves: list[bool]
    accessed: dict[tuple[int, int], int]
    capacity: list[int | None]
    steps: int


def moves_bound_fault(banked: BankedPlan, search: bool) -> tuple[str, tuple[str, ...]]:
    """What is wrong with a bound that is to hold for plans with moves, and what of it was not checked."""
    before, bound = unmoved(banked.problem), banked.bound
    if faults := [*before.faults, *_outside(banked.problem, before)]:
        return f"nothing is proved: {faults[0]}", ()
    case = _case(banked, before)
    if bound.kind is BankBoundKind.MOVES:
        proved = _proved_by_prices(case, bound, before)
        return ("" if proved >= bound.value else f"the certificate proves {proved}, not {bound.value}"), ()
    if not search:
        return "", ()
    least = _swept(case)
    if least is None:
        return "", ("the sweep behind the bound over all moves was not repeated: too many states",)
    return ("" if least >= bound.value else f"ways of {least} do better than the bound {bound.value}"), ()


def _outside(problem: Problem, before: Unmoved) -> list[str]:
    """Accesses, of copies as well, outside the life of the storage; lives that begin or end with a copy that
    is not theirs."""
    assert problem.origin is not None
    graph, schedule = problem.origin.graph, problem.origin.schedule
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    lives = dict(
        zip(problem.names, zip(problem.start.tolist(), problem.end.tolist(), strict=True), strict=True)
    )
    faults = [
        f"{op.name} accesses {name} at step {step}, outside the life of {home[name]}"
        for step, op in zip(schedule.step_of_op, graph.ops, strict=True)
        for name in (*op.inputs, *op.outputs, *op.mutates)
        if home[name] in lives and not lives[home[name]][0] <= step < lives[home[name]][1]
    ]
    for name, parts in before.parts.items():
        if name in lives and parts[-1] in lives:
            first, last = lives[name][0], lives[parts[-1]][1] - 1
            if first not in before.old_step or last not in before.old_step:
                faults.append(f"{name} begins or ends at a step of a copy")
    return faults


def _case(banked: BankedPlan, before: Unmoved) -> _Case:
    problem, banks = banked.problem, banks_of(banked.problem)
    assert problem.origin is not None
    graph = problem.origin.graph
    rows = {name: row for row, name in enumerate(problem.names)}
    owners = [name for name in before.parts if name in rows]
    place = {part: number for number, name in enumerate(owners) for part in before.parts[name]}
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    steps = zip(problem.origin.schedule.step_of_op, graph.ops, strict=True)
    plain = [(before.old_step[step], op) for step, op in steps if step in before.old_step]
    accessed: dict[tuple[int, int], int] = {}
    for (storage, step), nbytes in accesses_of(plain, tensors).items():
        if storage in place:
            key = (place[storage], step)
            accessed[key] = accessed.get(key, 0) + nbytes
    firsts = [rows[name] for name in owners]
    lasts = [rows[before.parts[name][-1]] for name in owners]
    capacity = [bank.capacity for bank in banks.banks]
    limits = [int(problem.size.max(initial=0)) if limit is None else limit for limit in capacity]
    worst = 1 + max(banks.weights)
    wishes = banks.preferred[firsts].tolist()
    roles = {storage.name: storage.role for storage in graph.storages}
    return _Case(
        [before.old_step[int(problem.start[row])] for row in firsts],
        [before.old_step[int(problem.end[row]) - 1] + 1 for row in lasts],
        problem.size[firsts].tolist(),
        [
            [weight + (0 if wish in (ANY, bank) else worst) for bank, weight in enumerate(banks.weights)]
            for wish in wishes
        ],
        banks.allowed[firsts] & (problem.size[firsts][:, None] <= np.array(limits)[None, :]),
        [roles[name] is not Role.CONSTANT for name in owners],
        accessed,
        capacity,
        max(1, len(before.old_step)),
    )


def _proved_by_prices(case: _Case, bound: BankBound, before: Unmoved) -> int:
    """What the prices prove; −1 where they are none: one below 0, two at one step, one of a bank without a
    capacity or at a copy."""
    banks, scale = len(case.capacity), bound.scale
    places = [(bank, before.old_step.get(step, -1)) for bank, step, _ in bound.prices]
    sound = all(0 <= bank < banks and case.capacity[bank] is not None and step >= 0 for bank, step in places)
    if (
        not sound
        or len(set(places)) < len(places)
        or scale < 1
        or min((p for *_, p in bound.prices), default=0) < 0
    ):
        return -1
    price = [[0] * case.steps for _ in range(banks)]
    for (bank, step), (_, _, each) in zip(places, bound.prices, strict=True):
        price[bank][step] = each
    returned = sum((limit or 0) * sum(own) for limit, own in zip(case.capacity, price, strict=True))
    paid = sum(case.size) * sum(max(own) for own in zip(*price, strict=True))
    accessed = (
        3 * scale * max(map(max, case.weight), default=0) * (sum(case.accessed.values()) + sum(case.size))
    )
    # Python's integers where 64 bits might not do.
    exact = np.int64 if paid + accessed < NEVER // 2 else object
    total = _cheapest_ways(case, np.array(price, dtype=exact), scale, exact)
    return -(-(total - returned) // scale)


def _cheapest_ways(case: _Case, price: Ints, scale: int, exact: type) -> int:
    """The sum of the least that each buffer can pay, prices included."""
    size: Ints = np.array(case.size, dtype=exact)
    weight: Ints = np.array(case.weight, dtype=exact)
    never = NEVER if exact is not object else 2**4000
    cost = np.where(case.allowed, np.array(0, dtype=exact), np.array(never, dtype=exact))
    moves, total = np.array(case.moves, dtype=np.bool_), 0
    begins: dict[int, list[int]] = {}
    for row, start in enumerate(case.start):
        begins.setdefault(start, []).append(row)
    at: dict[int, list[tuple[int, int]]] = {}
    for (row, step), nbytes in case.accessed.items():
        at.setdefault(step, []).append((row, nbytes))
    live: list[int] = []
    for step in range(case.steps):
        live = [row for row in live if case.end[row] > step]
        rows = np.array([row for row in live if moves[row]], dtype=np.int64)
        if len(rows):
            own, copied = cost[rows], scale * size[rows][:, None]
            for bank in range(len(case.capacity)):
                there = (own + copied * (weight[rows] + weight[rows, bank][:, None])).min(axis=1)
                cost[rows, bank] = np.where(case.allowed[rows, bank], np.minimum(own[:, bank], there), never)
        live += begins.get(step, [])
        rows = np.array(live, dtype=np.int64)
        if len(rows):
            cost[rows] += size[rows][:, None] * price[:, step][None, :]
        for row, nbytes in at.get(step, []):
            cost[row] += scale * nbytes * weight[row]
        cost[rows] = np.where(case.allowed[rows], cost[rows], never)
        total += sum(int(cost[row].min()) for row in live if case.end[row] == step + 1)
    return total


def _swept(case: _Case) -> int | None:
    """The least cost of all ways within the capacities by live bytes; None where there are too many."""
    states: dict[tuple[tuple[int, int], ...], int] = {(): 0}
    seen = 0
    for step in range(case.steps):
        states = _cheaper(
            ((tuple(p for p in s if case.end[p[0]] > step), cost) for s, cost in states.items())
        )
        live = [row for row in range(len(case.size)) if case.start[row] <= step < case.end[row]]
        for row in live:
            new = case.start[row] == step
            following = []
            for state, cost in states.items():
                origin = dict(state).get(row, -1)
                rest = tuple(pair for pair in state if pair[0] != row)
                for bank in np.flatnonzero(case.allowed[row]).tolist():
                    stays = new or bank == origin
                    if not stays and not case.moves[row]:
                        continue
                    both = case.weight[row][bank] + case.weight[row][origin]
                    copied = 0 if stays else case.size[row] * both
                    access = case.accessed.get((row, step), 0) * case.weight[row][bank]
                    following.append(((*rest, (row, bank)), cost + copied + access))
            seen += len(following)
            if seen > MOST_STATES:
                return None
            states = _cheaper(following)
        states = {state: cost for state, cost in states.items() if _fits(case, state)}
    return min(states.values(), default=NEVER)


def _cheaper(
    states: Iterable[tuple[tuple[tuple[int, int], ...], int]],
) -> dict[tuple[tuple[int, int], ...], int]:
    """Of equal states the cheapest."""
    best: dict[tuple[tuple[int, int], ...], int] = {}
    for state, cost in states:
        best[state] = min(cost, best.get(state, cost))
    return best


def _fits(case: _Case, state: tuple[tuple[int, int], ...]) -> bool:
    loads = [0] * len(case.capacity)
    for row, bank in state:
        loads[bank] += case.size[row]
    return all(limit is None or load <= limit for load, limit in zip(loads, case.capacity, strict=True))
