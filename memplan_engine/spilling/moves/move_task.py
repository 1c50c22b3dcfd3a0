"""What a plan with moves has to decide, as arrays: for each buffer a bank at each step of its life."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.banked.bank_moves import has_moves
from memplan_engine.banked.banked_plan import accesses, banks_of
from memplan_engine.banks.bank_values import ANY
from memplan_engine.errors import InputError
from memplan_engine.graph import Role
from memplan_engine.kernels.banks.routes import NO_BANK, cost_of_routes, count_routes, route_in_order
from memplan_engine.kernels.types import Flags, Ints
from memplan_engine.problem import FREE, Problem
from memplan_engine.spilling.assignment_task import UNLIMITED
from memplan_engine.spilling.bank_prices import MOST_SCALED

MOST_PLACES = 2**26
"""Of the lives of all buffers together, in steps: half a gigabyte a column."""


@dataclass(frozen=True, slots=True, eq=False)
class MoveTask:
    """n buffers, k banks, s steps; columns as `kernels.banks.routes` takes them. `capacity` (k) is UNLIMITED
    for banks without one; `room` (k, s) is what the ways may fill at each step. `dearest` is what no way
    without moves costs more than, of all buffers together. Searches multiply costs by `scale` and add `fee`
    for each copy: of plans of equal cost that with fewer copies is better. `back` is scratch of the kernels.
    """

    problem: Problem
    start: Ints
    end: Ints
    first: Ints
    size: Ints
    access: Ints
    weight: Ints
    moves: Flags
    capacity: Ints
    room: Ints
    dearest: int
    scale: int
    fee: int
    back: Ints

    @property
    def shape(self) -> tuple[int, int]:
        """Banks and steps: the shape of loads and prices."""
        return self.room.shape[0], self.room.shape[1]

    @property
    def everybody(self) -> Ints:
        """All buffers, in their order."""
        return np.arange(len(self.size))

    def route(
        self, order: Ints, path: Ints, load: Ints, *, price: Ints, room: Ints, scale: int, fee: int = 0
    ) -> tuple[int, int]:
        """Give `order` the cheapest ways beside `load`, in `path`: what they pay in all, prices included, and
        how many found none."""
        paid = np.zeros(len(self.size), dtype=np.int64)
        homeless = route_in_order(
            order, self.start, self.end, self.first, self.size, self.access, self.weight, self.moves, scale,
            fee, price, room, load, self.back, path, paid,
        )  # fmt: skip
        return (0 if homeless else int(paid[order].sum())), homeless

    def count(self, order: Ints, sign: int, path: Ints, load: Ints) -> None:
        """Count `order` in `load`, or out of it."""
        count_routes(order, sign, self.start, self.first, self.size, path, load)

    def cost(self, order: Ints, path: Ints, scale: int = 1, fee: int = 0) -> int:
        """What the ways of `order` cost, without prices."""
        columns = self.first, self.size, self.access, self.weight
        return cost_of_routes(order, *columns, scale, fee, path)

    def staying(self, bank_of: Ints) -> Ints:
        """The ways of buffers that stay where they are."""
        return np.repeat(bank_of, np.diff(self.first))


def make_move_task(problem: Problem) -> MoveTask:
    """The task of a problem with banks that was made from a graph.

    Raises
    ------
    InputError: buffers without a graph, with gaps or fixed offsets, accesses that are not those of the graph,
    a graph that has moves, or lives too long for a decision at each step.
    """
    banks = banks_of(problem)
    at = _accesses(problem)
    life = problem.end - problem.start
    first = np.concatenate([[0], np.cumsum(life)])
    if first[-1] > MOST_PLACES:
        found = f"lives of {int(first[-1]):,} steps together"
        raise InputError(problem.name, "--moves", found, f"{MOST_PLACES:,} at most; plan without --moves")
    access = np.zeros(int(first[-1]), dtype=np.int64)
    for row, step, nbytes in at:
        access[first[row] + step - int(problem.start[row])] += nbytes
    capacity = np.array(
        [UNLIMITED if b.capacity is None else b.capacity for b in banks.banks], dtype=np.int64
    )
    may_live = banks.allowed & (problem.size[:, None] <= capacity[None, :])
    weights = np.array(banks.weights, dtype=np.int64)
    wished = (banks.preferred != ANY)[:, None] & (banks.preferred[:, None] != np.arange(len(banks)))
    weight = weights[None, :] + np.where(wished, 1 + int(weights.max(initial=0)), 0)
    constants = (
        {s.name for s in problem.origin.graph.storages if s.role is Role.CONSTANT} if problem.origin else ()
    )
    steps = max(1, problem.steps)
    own = np.where(may_live, weight, NO_BANK)
    dearest = int((banks.accessed * own.max(axis=1, initial=0)).sum())
    scale = 1 << len(access).bit_length()
    scale = scale if scale * (2 * dearest + 1) < MOST_SCALED else 1
    return MoveTask(
        problem, np.ascontiguousarray(problem.start), np.ascontiguousarray(problem.end), first, problem.size,
        access, own, np.array([name not in constants for name in problem.names], dtype=np.bool_), capacity,
        np.repeat(capacity[:, None], steps, axis=1), dearest, scale, int(scale > 1),
        np.zeros(int(life.max(initial=1)) * len(banks), dtype=np.int64),
    )  # fmt: skip


def _accesses(problem: Problem) -> list[tuple[int, int, int]]:
    """(buffer, step, bytes) of each access by an op."""
    way_out = "a graph, whose ops say when a buffer is accessed; plan without --moves"
    if problem.origin is None:
        raise InputError(problem.name, "--moves", "buffers without a graph", way_out)
    graph, schedule = problem.origin.graph, problem.origin.schedule
    if has_moves(problem):
        expected = "the graph that it was made from: --moves of that"
        raise InputError(problem.name, "--moves", "a graph in which buffers move already", expected)
    odd = next(iter(problem.gaps), None)
    if odd is not None or (problem.fixed != FREE).any():
        row = int(np.argmax(problem.fixed != FREE)) if odd is None else odd
        found = f"a {'fixed offset' if odd is None else 'gap'} of buffer {problem.names[row]!r}"
        raise InputError(problem.name, "--moves", found, "buffers with neither; plan without --moves")
    rows = {name: row for row, name in enumerate(problem.names)}
    found_at = [
        (rows[storage], schedule.step_of_op[op], nbytes)
        for op, storage, nbytes in accesses(graph)
        if storage in rows
    ]
    counted = np.zeros(len(problem), dtype=np.int64)
    for row, step, nbytes in found_at:
        counted[row] += nbytes
        if not problem.start[row] <= step < problem.end[row]:
            found = f"buffer {problem.names[row]!r}, accessed at step {step}"
            raise InputError(problem.name, "--moves", found, "a life that covers its accesses")
    wrong = np.flatnonzero(counted != banks_of(problem).accessed)
    if len(wrong):
        row = int(wrong[0])
        found = f"{int(banks_of(problem).accessed[row])} accessed bytes of buffer {problem.names[row]!r}"
        raise InputError(problem.name, "--moves", found, f"{int(counted[row])}, as its graph says")
    return found_at
