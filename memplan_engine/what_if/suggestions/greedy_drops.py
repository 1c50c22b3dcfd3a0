"""Leaving buffers out greedily until no step is overfull; and how little each of them need shrink instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memplan_engine.pieces import Pieces
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Sections, alive_at, load_of


@dataclass(frozen=True, slots=True, eq=False)
class Live:
    """The live bytes of each section, `nbytes`, and the pieces that they are the sum of."""

    pieces: Pieces
    sections: Sections
    nbytes: Ints

    @classmethod
    def of(cls, problem: Problem) -> Live:
        """Of all buffers."""
        load = load_of(problem)
        return cls(load.pieces, load.sections, load.live if len(load.live) else np.zeros(1, dtype=np.int64))

    def worst(self) -> int:
        """The section where most is alive."""
        return int(np.argmax(self.nbytes))

    def without(self, rows: Sequence[int]) -> Live:
        """When the buffers `rows` are left out."""
        nbytes = self.nbytes.copy()
        for row in rows:
            for first, last, held in self.stretches(row):
                nbytes[first:last] -= held
        return replace(self, nbytes=nbytes)

    def stretches(self, row: int) -> list[tuple[int, int, int]]:
        """Where the buffer is alive: sections `[first, last)` and the bytes that it holds there."""
        own = slice(int(self.pieces.first[row]), int(self.pieces.first[row + 1]))
        held = self.pieces.high[own] - self.pieces.low[own]
        first, last = self.sections.first[own], self.sections.last[own]
        return list(zip(first.tolist(), last.tolist(), held.tolist(), strict=True))


def greedy_cover(
    problem: Problem, live: Live, capacity: int, stop: Callable[[], bool]
) -> tuple[int, ...] | None:
    """Buffers (ascending) to leave out: at the worst step whoever holds most bytes over most overfull
    sections, again and again; at last without those not needed. None when `stop` ended it."""
    chosen: dict[int, None] = {}
    left = live.without(())
    while left.nbytes[worst := left.worst()] > capacity:
        if stop():
            return None
        alive = alive_at(problem, int(live.sections.bounds[worst]))
        alive = alive[[row not in chosen for row in alive.tolist()]]
        before = np.concatenate([[0], np.cumsum(left.nbytes > capacity)])
        first = np.searchsorted(live.sections.bounds, problem.start[alive])
        last = np.searchsorted(live.sections.bounds, problem.end[alive])
        gain = problem.size[alive].astype(np.float64) * (before[last] - before[first])
        row = int(alive[int(np.argmax(gain))])
        chosen[row] = None
        for begin, end, held in live.stretches(row):
            left.nbytes[begin:end] -= held
    for row in sorted(chosen, key=lambda row: (-int(problem.size[row]), row)):
        stretches = live.stretches(row)
        if all(int(left.nbytes[begin:end].max()) + held <= capacity for begin, end, held in stretches):
            del chosen[row]
            for begin, end, held in stretches:
                left.nbytes[begin:end] += held
    return tuple(sorted(chosen))


def least_losses(problem: Problem, rows: Sequence[int], capacity: int) -> dict[int, int]:
    """Row → by how many bytes it must shrink, where leaving all `rows` out brings the live bytes down to
    `capacity`: the largest first take back as much as there is room for. No loss can be made smaller alone.
    """
    live = Live.of(problem)
    left = live.without(rows)
    losses = {}
    for row in sorted(rows, key=lambda row: (-int(problem.size[row]), row)):
        size, stretches = int(problem.size[row]), live.stretches(row)
        room = min(
            (capacity - int(left.nbytes[begin:end].max()) for begin, end, _ in stretches), default=size
        )
        # A window of a gap gets smaller with its buffer, or not at all: such a buffer stays out.
        back = 0 if row in problem.gaps else min(room, size)
        for begin, end, _ in stretches:
            left.nbytes[begin:end] += back
        if back < size:
            losses[row] = size - back
    return losses
