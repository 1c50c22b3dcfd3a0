"""Stacks: buffers of which any two meet, though with gaps perhaps no step sees all of them.

Lifetimes without gaps that meet in pairs have a step in common. With gaps they need not: one buffer may meet
the second in its first half and the third in its second. All the same no two of them share a byte, so the
arena holds at least the sum of their sizes. That can be more than LOAD, and branch and bound, which looks at
one step at a time, finds it out only by trying.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.pieces import cut
from memplan_engine.problem import Ints, Problem, select
from memplan_engine.strategies.exact.independent_parts import independent

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
