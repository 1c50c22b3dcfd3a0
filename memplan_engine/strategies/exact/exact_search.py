"""The smallest arena with a proof, by branch and bound.

A proof names a core: a stack, whose buffers meet in pairs, or the few of many refuted buffers that are
refuted alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from memplan_engine.bounds import Bound, BoundKind, lower_bound
from memplan_engine.problem import Ints, Problem, cut, select
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.order_fit import place_by_portfolio, place_quickly
from memplan_engine.strategies.exact.independent_parts import Outcome, PartSearch, independent
from memplan_engine.strategies.exact.race import Race

SHRINK_SECONDS = 2.0
"""How long a core is made smaller at most, once all else is done."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Branch and bound over each independent part, from the lower bound upwards and from the best order × fit
    downwards at once: it ends when they meet. With `capacity` (bytes) it ends as soon as the plan fits, or is
    proved not to fit. Parts of more than `independent_parts.MOST_BUFFERS` buffers keep their first placement.

    Where buffers have gaps in which they need some of their bytes, placements leave that room unused and
    proofs leave those bytes out: both hold, but may not meet.
    """

    capacity: int | None = None

    anytime: ClassVar[bool] = True
    name: ClassVar[str] = "exact"
    description: ClassVar[str] = "branch and bound, until the arena is proved minimal"
    source: ClassVar[str] = "memplan; canonical placements and splitting after MiniMalloc (Moffitt, 2023)"

    def with_capacity(self, capacity: int | None) -> Exact:
        """The same, which ends when the arena fits into `capacity` bytes."""
        return replace(self, capacity=capacity)

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """The best placement found, with the bound that was proved; never worse than the portfolio."""
        spent = limits.stopped
        limits.prove(bound := lower_bound(problem))
        quick = place_quickly(problem, limits, spent)
        first = place_by_portfolio(problem, limits, max(bound.nbytes, self.capacity or 0), quick)
        bound = raise_bound(problem, first, bound, limits)
        race = Race(problem, first, bound, limits.seed, self.capacity)
        threads = limits.most_threads
        race.run(limits, threads)
        return finish(problem, race, limits, threads if race.parts else 1)


def raise_bound(problem: Problem, first: Placement, bound: Bound, limits: SolveLimits) -> Bound:
    """`bound`, or a better one where gaps give it at once and `first` leaves something to prove."""
    if limits.stopped or first.arena_bytes(problem) <= bound.nbytes:
        return bound
    stack = heaviest_stack(problem, bound.nbytes)
    if stack is None:
        return bound
    limits.prove(stack)
    return stack


def finish(problem: Problem, race: Race, limits: SolveLimits, threads: int) -> Placement:
    """What `race` has come to, its core made small in what is left of the time."""
    placement = replace(race.best, bound=race.bound, threads=threads)
    # Parts of several placements may be better together than any of them was.
    limits.report(placement, problem)
    if limits.stopped or not limits.left:
        return placement
    share = limits.part(min(SHRINK_SECONDS, limits.left))
    with share.running():
        bound = shrink_core(problem, race.bound, share)
    return replace(placement, bound=bound)


MOST_BUFFERS = 400
"""Parts with more are left alone."""
MOST_NODES = 4_000
"""Of the search for the heaviest stack of a part: a tenth of a second."""

Set = int
"""Bit b stands for the buffer b."""


def heaviest_stack(problem: Problem, least: int) -> Bound | None:
    """The largest sum of sizes of buffers that meet in pairs, if it passes `least` bytes and is found soon.

    Only problems with gaps can have one above LOAD. Two buffers meet where both hold all their bytes.
    """
    best, core = least, np.zeros(0, dtype=np.int64)
    for rows in independent(problem) if problem.gaps else ():
        if len(rows) <= MOST_BUFFERS:
            nbytes, members = _Search(select(problem, rows)).run(best)
            if nbytes > best:
                best, core = nbytes, np.sort(rows[members])
    if best == least:
        return None
    first, last = int(problem.start[core].min()), int(problem.end[core].max())
    return Bound(best, BoundKind.CORE, first, core=tuple(core.tolist()), until=last)


def is_stack(problem: Problem, rows: Ints, nbytes: int) -> bool:
    """Whether the buffers `rows` meet in pairs and hold `nbytes` bytes or more together."""
    if not problem.gaps or len(rows) > MOST_BUFFERS or int(problem.size[rows].sum()) < nbytes:
        return False
    others = (1 << len(rows)) - 1
    return all(near | 1 << buffer == others for buffer, near in enumerate(_meetings(select(problem, rows))))


def _meetings(problem: Problem) -> list[Set]:
    """Of each buffer, those that it meets at some step at which both hold all their bytes."""
    pieces, near = cut(problem), [0] * len(problem)
    whole = pieces.high - pieces.low == problem.size[pieces.owner]
    columns = np.column_stack([pieces.start, pieces.end, pieces.owner])[whole]
    active: list[tuple[int, int]] = []
    for start, end, owner in sorted(columns.tolist()):
        active = [(until, other) for until, other in active if until > start]
        for _, other in active:
            near[owner] |= 1 << other
            near[other] |= 1 << owner
        active.append((end, owner))
    return near


def _members(some: Set) -> Iterator[int]:
    while some:
        lowest = some & -some
        yield lowest.bit_length() - 1
        some ^= lowest


class _Search:
    """The heaviest clique: branch and bound with a colouring as the bound (Tomita and Seki, 2003)."""

    def __init__(self, problem: Problem) -> None:
        self.order = np.argsort(-problem.size, kind="stable")
        ordered = select(problem, self.order)
        self.size: list[int] = ordered.size.tolist()
        self.near = _meetings(ordered)
        self.best, self.chosen, self.nodes = 0, 0, 0

    def run(self, least: int) -> tuple[int, Ints]:
        """Bytes and members of the heaviest, or `least` and none when it found nothing above that."""
        self.best = least
        self._grow(0, 0, (1 << len(self.size)) - 1)
        return self.best, self.order[list(_members(self.chosen))]

    def _grow(self, stack: Set, nbytes: int, possible: Set) -> None:
        self.nodes += 1
        if nbytes > self.best:
            self.best, self.chosen = nbytes, stack
        for most, buffer in reversed(self._coloured(possible)):
            if nbytes + most <= self.best or self.nodes > MOST_NODES:
                return
            self._grow(stack | 1 << buffer, nbytes + self.size[buffer], possible & self.near[buffer])
            possible &= ~(1 << buffer)

    def _coloured(self, possible: Set) -> list[tuple[int, int]]:
        """`possible` by colours, no two of one of which meet; with each what a stack of it and of those
        before it can hold at most: the largest of each colour."""
        coloured: list[tuple[int, int]] = []
        most = 0
        while possible:
            waiting = possible
            most += self.size[next(_members(possible))]
            while waiting:
                buffer = next(_members(waiting))
                waiting &= ~(1 << buffer) & ~self.near[buffer]
                possible ^= 1 << buffer
                coloured.append((most, buffer))
        return coloured


ATTEMPTS = 6
NODES = 3_000
"""Attempts, and nodes of each, after which buffers count as not refuted."""

Refuted = Callable[[Ints], bool]


def shrink_core(problem: Problem, bound: Bound, limits: SolveLimits) -> Bound:
    """Return `bound` with as few buffers in its core as `limits` allow; only the kind CORE is changed.

    First the window is narrowed from both ends, then buffers are left out in halves, quarters and so on
    (Zeller's delta debugging): what is left cannot be placed in fewer than `bound.nbytes` bytes, either.
    """
    if bound.kind is not BoundKind.CORE or is_stack(problem, np.array(bound.core), bound.nbytes):
        return bound

    def refuted(rows: Ints) -> bool:
        return not limits.stopped and is_refuted(problem, rows, bound.nbytes - 1, limits)

    rows = np.array(bound.core, dtype=np.int64)
    rows = _narrow(rows, problem.start, refuted)
    rows = _narrow(rows, -problem.end, refuted)
    rows = np.sort(_leave_out(rows, refuted))
    first, last = int(problem.start[rows].min()), int(problem.end[rows].max())
    return replace(bound, core=tuple(rows.tolist()), step=first, until=last)


def is_refuted(problem: Problem, rows: Ints, capacity: int, limits: SolveLimits) -> bool:
    """Whether a short search proves that the buffers `rows` alone do not fit into `capacity` bytes."""
    alone = select(problem, rows)
    if lower_bound(alone).nbytes > capacity:
        return True
    for some in independent(alone):
        search = PartSearch(alone, some, select(alone, some))
        for attempt in range(ATTEMPTS):
            outcome, _ = search.attempt(capacity, attempt, limits, NODES)
            if outcome is Outcome.DOES_NOT_FIT:
                return True
            if outcome is Outcome.FITS:
                break
    return False


def _narrow(rows: Ints, key: Ints, refuted: Refuted) -> Ints:
    """Leave out the buffers of the largest `key`, as many as can be, by bisection."""
    ordered = rows[np.argsort(key[rows], kind="stable")]
    enough, too_few = len(ordered), 0
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if refuted(ordered[:middle]):
            enough = middle
        else:
            too_few = middle
    return ordered[:enough]


def _leave_out(rows: Ints, refuted: Refuted) -> Ints:
    size = len(rows) // 2
    while size >= 1:
        place = 0
        while place < len(rows):
            fewer = np.concatenate([rows[:place], rows[place + size :]])
            if len(fewer) and refuted(fewer):
                rows = fewer
            else:
                place += size
        size //= 2
    return rows
