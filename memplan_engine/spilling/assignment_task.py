"""What an assignment to banks has to decide, as arrays; and the loads and costs of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from memplan_engine.banked.banked_plan import banks_of
from memplan_engine.kernels.banks.insert import NOWHERE
from memplan_engine.kernels.types import Flags, Ints
from memplan_engine.problem import Problem
from memplan_engine.profile import load_of

UNLIMITED = 2**62
"""The capacity of a bank without one: more than all buffers together."""
MOST_MEETINGS = 16
"""Entries of `Blocks.meets` for each piece and section, on average."""
FORBIDDEN = 2**62
"""The cost of a bank in which a buffer may not live."""


class Blocks(NamedTuple):
    """Which pieces meet which stretch of time: those of block b, sections `[b × width, (b + 1) × width)`, are
    `meets[first[b]] …`. Blocks are so wide that there are few entries for each piece."""

    first: Ints
    meets: Ints
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """n buffers, k banks, s sections of time. Pieces `first[b] … first[b + 1] − 1` of buffer b hold `width`
    bytes in the sections `[start, end)`. `allowed` (n, k) says who may
    live where and is not larger than the whole bank; `cost` (n, k) is FORBIDDEN elsewhere. `capacity` (k)
    is UNLIMITED for banks without one; `room` (k, s) is what an assignment may fill in each section: the
    capacity, or less where a packing is known to lose some of it."""

    problem: Problem
    first: Ints
    start: Ints
    end: Ints
    width: Ints
    owner: Ints
    bounds: Ints
    cost: Ints
    allowed: Flags
    capacity: Ints
    room: Ints
    blocks: Blocks

    @property
    def shape(self) -> tuple[int, int]:
        """Banks and sections: the shape of loads and prices."""
        return len(self.capacity), len(self.bounds) - 1

    @property
    def pieces(self) -> tuple[Ints, Ints, Ints, Ints]:
        """What the kernels take: first, start, end, width."""
        return self.first, self.start, self.end, self.width

    @property
    def cheapest(self) -> Ints:
        """The cost of each buffer in the cheapest bank that it may live in (int64, n)."""
        least: Ints = self.cost.min(axis=1)
        return least

    @property
    def dearest(self) -> int:
        """What no assignment costs more than."""
        return int(np.where(self.allowed, self.cost, 0).max(axis=1).sum())

    @property
    def homeless_cost(self) -> int:
        """More than any buffer can cost anywhere."""
        return int(np.where(self.allowed, self.cost, 0).max(initial=0)) + 1

    def load(self, bank_of: Ints) -> Ints:
        """The live bytes of each bank in each section (int64, (k, s)); buffers at NOWHERE are in none."""
        banks, sections = self.shape
        change = np.zeros((banks, sections + 1), dtype=np.int64)
        homes = bank_of[self.owner]
        own = homes != NOWHERE
        np.add.at(change, (homes[own], self.start[own]), self.width[own])
        np.subtract.at(change, (homes[own], self.end[own]), self.width[own])
        loads: Ints = np.cumsum(change, axis=1)[:, :-1]
        return np.ascontiguousarray(loads)

    def total(self, bank_of: Ints) -> int:
        """What an assignment without anybody NOWHERE costs."""
        return int(self.cost[np.arange(len(bank_of)), bank_of].sum())

    def with_capacity(self, capacity: Ints) -> Task:
        """The same with other capacities."""
        allowed = self.allowed & _fits(self.problem, capacity)
        room = np.repeat(capacity[:, None], self.shape[1], axis=1)
        cost = np.where(allowed, self.cost, FORBIDDEN)
        return replace(self, capacity=capacity, room=room, allowed=allowed, cost=cost)


def make_task(problem: Problem) -> Task:
    """The task of a problem with banks."""
    banks, load = banks_of(problem), load_of(problem)
    pieces, sections = load.pieces, load.sections
    own = [UNLIMITED if bank.capacity is None else bank.capacity for bank in banks.banks]
    capacity = np.minimum(np.array(own, dtype=np.int64), UNLIMITED)
    allowed = banks.allowed & _fits(problem, capacity)
    start, end = np.ascontiguousarray(sections.first), np.ascontiguousarray(sections.last)
    return Task(
        problem,
        pieces.first,
        start,
        end,
        np.ascontiguousarray(pieces.high - pieces.low),
        pieces.owner,
        sections.bounds,
        np.where(allowed, banks.costs, FORBIDDEN),
        allowed,
        capacity,
        np.repeat(capacity[:, None], len(sections), axis=1),
        _in_blocks(start, end, len(sections)),
    )


def _fits(problem: Problem, capacity: Ints) -> Flags:
    """Whether each buffer, by itself, fits into each bank."""
    reach = problem.size + np.maximum(problem.fixed, 0)
    fits: Flags = reach[:, None] <= capacity[None, :]
    return fits


def _in_blocks(start: Ints, end: Ints, sections: int) -> Blocks:
    width = 1
    while int(((end - 1) // width - start // width + 1).sum()) > MOST_MEETINGS * (len(start) + sections):
        width *= 2
    low, counts = start // width, (end - 1) // width - start // width + 1
    piece = np.repeat(np.arange(len(start)), counts)
    begins = np.cumsum(counts) - counts
    block = low[piece] + np.arange(len(piece)) - begins[piece]
    order = np.argsort(block, kind="stable")
    first = np.searchsorted(block[order], np.arange(-(-sections // width) + 1))
    return Blocks(first, piece[order], width)


def rank(values: Ints, allowed: Flags) -> Ints:
    """The banks of each buffer by `values` (n, k), the first of equals first, those that are not allowed
    left out: rows ended by NOWHERE."""
    keys = np.where(allowed, values, np.iinfo(np.int64).max)
    order = np.argsort(keys, axis=1, kind="stable")
    counts = allowed.sum(axis=1)
    ranked: Ints = np.where(np.arange(values.shape[1])[None, :] < counts[:, None], order, NOWHERE)
    return np.ascontiguousarray(ranked)
