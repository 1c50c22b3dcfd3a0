"""Searches of the validator's own over assignments to banks: step by step in time, and one by one."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf

import numpy as np

from memplan_engine.banked.banked_plan import banks_of
from memplan_engine.banks.bank_values import ANY
from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.problem import FREE, Ints, Problem, select
from memplan_engine.verify.certificates import MOST_BUFFERS, Outcome, replay

MOST_ASSIGNMENTS = 30_000
"""Partial assignments after which a search that proves a bound is not repeated: a second or less."""
MOST_STATES = 200_000
"""Of all steps together, where it is repeated in time."""
MOST_ENUMERATED = 200
"""Buffers of a search that is repeated one by one."""
MOST_WORK = 40_000_000
"""Of one replay of a packing: a tenth of a second."""
Piece = tuple[int, int, int, int]


def costs_of(problem: Problem) -> list[list[int]]:
    """The cost of each buffer in each bank from the definition, in Python's integers."""
    banks = banks_of(problem)
    worst = 1 + max(banks.weights)
    costs = []
    for accessed, wish in zip(banks.accessed.tolist(), banks.preferred.tolist(), strict=True):
        fine = max(accessed, 1) * worst
        costs.append(
            [
                accessed * weight + (0 if wish in (ANY, bank) else fine)
                for bank, weight in enumerate(banks.weights)
            ]
        )
    return costs


def pieces_of(problem: Problem, row: int) -> list[Piece]:
    """start, end, low and high of what a buffer holds."""
    size, clock = int(problem.size[row]), int(problem.start[row])
    pieces = []
    for gap in problem.gaps.get(row, ()):
        pieces += [(clock, gap.start, 0, size), (gap.start, gap.end, gap.low, gap.high)]
        clock = gap.end
    pieces.append((clock, int(problem.end[row]), 0, size))
    return [(start, end, low, high) for start, end, low, high in pieces if start < end and low < high]


def held_at(problem: Problem, step: int) -> list[tuple[int, int, int]]:
    """(buffer, low, high) of what is held at `step`."""
    return [
        (row, low, high)
        for row in np.flatnonzero((problem.start <= step) & (step < problem.end)).tolist()
        for start, end, low, high in pieces_of(problem, row)
        if start <= step < end
    ]


def misfits(problem: Problem, rows: Ints, bank: int, capacity: int | None) -> bool | None:
    """Whether the buffers `rows` need more than `capacity` bytes in `bank`; None where that is not known."""
    if capacity is None or not len(rows):
        return False
    part = select(problem, rows)
    unit = np.lcm(part.alignment, banks_of(problem).banks[bank].alignment)
    part = replace(part, alignment=np.where(part.fixed == FREE, unit, part.alignment), banks=None)
    if len(part) > MOST_BUFFERS:
        return None
    everybody = Bound(capacity + 1, BoundKind.CORE, 0, 1, tuple(range(len(part))), part.steps)
    outcome = replay(part, everybody, MOST_WORK).outcome
    return None if outcome is Outcome.UNCHECKED else outcome is Outcome.PROVED


def none_is_better(problem: Problem, capacities: list[int | None], below: int | None) -> bool | None:
    """Whether no assignment within the capacities costs less than `below` (None: whatever it costs); None
    where there are too many to look at."""
    least = _least_by_live_bytes(problem, capacities)
    if least is not None and least >= (inf if below is None else below):
        return True
    return _Enumeration(problem, capacities, below).none_fits()


def _edges(problem: Problem) -> list[int]:
    """Where something begins or ends, but for the last end."""
    edges = {0, *problem.start.tolist(), *problem.end.tolist()}
    edges |= {edge for gaps in problem.gaps.values() for gap in gaps for edge in (gap.start, gap.end)}
    return sorted(edge for edge in edges if edge < problem.steps)


def _least_by_live_bytes(problem: Problem, capacities: list[int | None]) -> float | None:
    """The least cost of an assignment whose live bytes stay within the capacities, infinite where there is
    none: of all that have the same buffers in the same banks at a step the cheapest goes on. None where there
    are too many."""
    costs, allowed = costs_of(problem), banks_of(problem).allowed
    states: dict[tuple[tuple[int, int], ...], float] = {(): 0}
    seen = 0
    for edge in _edges(problem):
        live = np.flatnonzero((problem.start <= edge) & (edge < problem.end)).tolist()
        new = [row for row in live if problem.start[row] == edge]
        staying = set(live) - set(new)
        held = {row: high - low for row, low, high in held_at(problem, edge)}
        choices = [np.flatnonzero(allowed[row]).tolist() for row in new]
        following: dict[tuple[tuple[int, int], ...], float] = {}
        for state, paid in states.items():
            kept = tuple(pair for pair in state if pair[0] in staying)
            for chosen in product(*choices):
                seen += 1
                if seen > MOST_STATES:
                    return None
                homes = (*kept, *zip(new, chosen, strict=True))
                if _within(homes, held, capacities):
                    cost = paid + sum(costs[row][bank] for row, bank in zip(new, chosen, strict=True))
                    following[homes] = min(cost, following.get(homes, inf))
        states = following
    return min(states.values(), default=inf)


def _within(homes: tuple[tuple[int, int], ...], held: dict[int, int], capacities: list[int | None]) -> bool:
    loads = [0] * len(capacities)
    for row, bank in homes:
        loads[bank] += held.get(row, 0)
    return all(limit is None or load <= limit for load, limit in zip(loads, capacities, strict=True))


@dataclass(slots=True)
class _Enumeration:
    """All assignments one after another, those left out that pass a capacity by live bytes, or cost `below`
    or more."""

    problem: Problem
    capacities: list[int | None]
    below: int | None
    seen: int = 0
    load: list[list[int]] = field(default_factory=list)
    spans: list[list[tuple[int, int, int]]] = field(default_factory=list)

    def none_fits(self) -> bool | None:
        """Whether no assignment has room for all; None where there are too many to look at."""
        if len(self.problem) > MOST_ENUMERATED:
            return None
        edges = _edges(self.problem)
        self.load = [[0] * len(edges) for _ in self.capacities]
        self.spans = [
            [
                (bisect_left(edges, start), bisect_left(edges, end), high - low)
                for start, end, low, high in pieces_of(self.problem, row)
            ]
            for row in range(len(self.problem))
        ]
        costs = costs_of(self.problem)
        allowed = banks_of(self.problem).allowed
        cheapest = [
            min(cost for cost, fine in zip(costs[row], allowed[row], strict=True) if fine)
            for row in range(len(costs))
        ]
        remaining = np.cumsum(np.array([*cheapest, 0], dtype=object)[::-1])[::-1].tolist()
        outcome = self._descend([], 0, costs, remaining)
        return None if outcome is None else not outcome

    def _descend(
        self, chosen: list[int], paid: int, costs: list[list[int]], remaining: list[int]
    ) -> bool | None:
        """Whether some assignment that begins with `chosen` fits."""
        row = len(chosen)
        self.seen += 1
        if self.below is not None and paid + remaining[row] >= self.below:
            return False
        if self.seen > MOST_ASSIGNMENTS:
            return None
        if row == len(costs):
            return self._fits(chosen)
        unknown = False
        for bank in np.flatnonzero(banks_of(self.problem).allowed[row]).tolist():
            outcome: bool | None = False
            if self._count(bank, row, 1):
                outcome = self._descend([*chosen, bank], paid + costs[row][bank], costs, remaining)
            self._count(bank, row, -1)
            if outcome:
                return True
            unknown = unknown or outcome is None
        return None if unknown else False

    def _count(self, bank: int, row: int, sign: int) -> bool:
        """Count a buffer in or out; whether its bank stays within its capacity while it lives."""
        load, limit, fine = self.load[bank], self.capacities[bank], True
        for begin, end, nbytes in self.spans[row]:
            for place in range(begin, end):
                load[place] += sign * nbytes
                fine = fine and (limit is None or load[place] <= limit)
        return fine

    def _fits(self, chosen: list[int]) -> bool | None:
        unknown = False
        for bank, capacity in enumerate(self.capacities):
            rows = np.flatnonzero(np.array(chosen, dtype=np.int64) == bank)
            wrong = misfits(self.problem, rows, bank, capacity)
            if wrong:
                return False
            unknown = unknown or wrong is None
        return None if unknown else True
