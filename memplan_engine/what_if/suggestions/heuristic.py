"""Buffers to leave out, or to shrink, so that an order × fit packs the rest: quick for any number of buffers,
and never proved to be the least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from memplan_engine.plan import Plan
from memplan_engine.problem import FREE, Ints, Problem, select
from memplan_engine.profile import load_of
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import TRIES, Try, place_by
from memplan_engine.strategies.constructive.orders import FitRule, make_timeline
from memplan_engine.what_if.suggestions.cover import greedy_cover, least_losses

MOST_ROUNDS = 8
"""How many targets for the live bytes are tried."""
GRACE_SECONDS = 1.0
"""What the quickest tries may take beyond the time that is given."""
TRY_NODES = 500
"""Nodes that one packing counts for where nodes are limited."""
QUICKEST: Try = (orders.BY_START, FitRule.FIRST)
ALSO: tuple[Try, ...] = ((orders.BY_SIZE, FitRule.FIRST), (orders.BY_LIFETIME, FitRule.FIRST))


@dataclass(frozen=True, slots=True)
class Reduction:
    """`losses`: the row of a buffer → by how many bytes it shrinks, its whole size where it is left out. The
    rest was packed into `arena_bytes`, at `offsets` (−1 for what is left out)."""

    losses: dict[int, int]
    arena_bytes: int
    offsets: Ints = field(compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """What all of them lose together."""
        return sum(self.losses.values())


def leave_out(plan: Plan, capacity: int, limits: SolveLimits) -> tuple[Reduction, Reduction | None]:
    """Buffers without which the rest of `plan`'s problem was packed into `capacity` bytes, and the same ones
    only shrunk where that was packed, too.

    The live bytes are covered down to a target that leaves first fit by start the room that it needs, which
    is quick. The target is then moved up by halving within `limits`, with other orders. Where none of
    them fits, what reaches beyond the capacity in `plan` goes, which needs no packing at all. At last
    whatever still finds a hole comes back.
    """
    search = _Search(plan, capacity, limits)
    best, target = search.overhanging(), search.first_target()
    low, high = -1, capacity
    for _ in range(MOST_ROUNDS):
        begun = low >= 0
        if target < 0 or search.over(0.0 if begun else GRACE_SECONDS):
            break
        reduction = search.covered(target, search.tries() if begun else [QUICKEST])
        if reduction is not None:
            low = target
            best = reduction if reduction.nbytes < best.nbytes or not begun else best
        else:
            high = target
        following = (low + high + 1) // 2 if low >= 0 else target - max(1, (capacity - target) // 3)
        if following == target or following >= high:
            break
        target = following
    return search.refilled(best), search.shrunk(best, low) if low >= 0 else None


@dataclass(slots=True)
class _Search:
    plan: Plan
    capacity: int
    limits: SolveLimits

    @property
    def problem(self) -> Problem:
        return self.plan.problem

    def over(self, grace: float = 0.0) -> bool:
        return self.left(grace) <= 0

    def left(self, grace: float = 0.0) -> float:
        """Return the seconds until the limits, or `grace` seconds after them, in the unit of `spent`."""
        if self.limits.counts_nodes:
            return self.limits.remaining + grace
        seconds = self.limits.seconds
        return np.inf if seconds is None else seconds + grace - self.limits.elapsed

    def first_target(self) -> int:
        """Live bytes of which the quickest packing makes the capacity, about."""
        order, fit = QUICKEST
        timeline = make_timeline(self.problem)
        offsets = place_by(timeline, order(timeline), fit, SolveLimits())
        assert offsets is not None
        arena = int((offsets + self.problem.size).max(initial=1))
        return self.capacity * load_of(self.problem).peak // max(1, arena)

    def tries(self) -> list[Try]:
        """First what made the plan."""
        found_by = str(dict(self.plan.parameters).get("found_by") or "")
        own = [(order, fit) for order, fit in TRIES if f"{order.name} × {fit} fit" == found_by]
        return list(dict.fromkeys((*own, *ALSO)))

    def overhanging(self) -> Reduction:
        """Whatever ends beyond the capacity, as `plan` placed it."""
        above = self.plan.offsets + self.problem.size > self.capacity
        return self._left_out(np.flatnonzero(above), self.plan.offsets)

    def refilled(self, reduction: Reduction) -> Reduction:
        """`reduction` with those left out put back that have room beside the others: the largest first, then
        the smallest."""
        for sign in (-1, 1):
            if not reduction.losses:
                break
            # Whatever is fixed by itself and left out does not fit, and would be in the way.
            rows = np.flatnonzero((reduction.offsets >= 0) | (self.problem.fixed == FREE))
            fixed = np.where(reduction.offsets >= 0, reduction.offsets, FREE)[rows]
            fixed.flags.writeable = False
            part = replace(select(self.problem, rows), fixed=fixed)
            order = np.argsort(sign * part.size, kind="stable")
            placed = place_by(make_timeline(part), order, FitRule.FIRST, SolveLimits())
            assert placed is not None
            offsets = np.full(len(self.problem), -1, dtype=np.int64)
            offsets[rows] = np.where(placed + part.size <= self.capacity, placed, -1)
            reduction = self._left_out(np.flatnonzero(offsets < 0), offsets)
        return reduction

    def _left_out(self, rows: Ints, offsets: Ints) -> Reduction:
        kept = np.ones(len(self.problem), dtype=bool)
        kept[rows] = False
        arena = int((offsets + self.problem.size)[kept].max(initial=0))
        losses = dict(zip(rows.tolist(), self.problem.size[rows].tolist(), strict=True))
        return Reduction(losses, arena, np.where(kept, offsets, -1))

    def covered(self, target: int, tries: Sequence[Try]) -> Reduction | None:
        """The buffers that bring the live bytes down to `target`, where the rest could be packed."""
        rows = greedy_cover(self.problem, target, lambda: self.over(GRACE_SECONDS))
        if rows is None:
            return None
        out = np.array(rows, dtype=np.int64)
        kept = np.setdiff1d(np.arange(len(self.problem)), out)
        packed = self._packed(select(self.problem, kept), tries)
        if packed is None:
            return None
        offsets = np.full(len(self.problem), -1, dtype=np.int64)
        offsets[kept] = packed
        return self._left_out(out, offsets)

    def shrunk(self, reduction: Reduction, target: int) -> Reduction | None:
        """The same buffers, each only as far as `target` demands, where that could be packed."""
        losses = least_losses(self.problem, tuple(reduction.losses), target)
        if any(loss >= self.problem.size[row] or row in self.problem.gaps for row, loss in losses.items()):
            return None
        size = self.problem.size.copy()
        size[list(losses)] -= np.array(list(losses.values()), dtype=np.int64)
        size.flags.writeable = False
        packed = self._packed(replace(self.problem, size=size), [QUICKEST, *self.tries()])
        return None if packed is None else Reduction(losses, int((packed + size).max()), packed)

    def _packed(self, problem: Problem, tries: Sequence[Try]) -> Ints | None:
        """The offsets of the first of `tries` that packs `problem` into the capacity; each is given up as
        soon as it passes it."""
        if not len(problem):
            return problem.size
        timeline = make_timeline(problem)
        for order, fit in tries:
            left = self.left(GRACE_SECONDS)
            if left <= 0:
                return None
            self.limits.count(TRY_NODES)
            seconds = self.limits.seconds if self.limits.counts_nodes else left
            limits = SolveLimits(None if seconds == np.inf else seconds)
            with limits.running():
                offsets = place_by(timeline, order(timeline), fit, limits, limit=self.capacity)
            if offsets is not None:
                return offsets
        return None
