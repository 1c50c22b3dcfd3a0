"""Where more is alive than a capacity holds, and who is alive there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.pieces import Pieces
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Load, Sections, load_of


@dataclass(frozen=True, slots=True)
class Stretch:
    """In the steps `[start, end)` more is alive than fits at each; `nbytes` live bytes at the worst."""

    start: int
    end: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Member:
    """A buffer alive at some overfull step: its index, size in bytes, and at how many of them it is alive."""

    buffer: int
    nbytes: int
    steps: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """The live bytes pass `capacity`: whatever the packing, they must fall by `nbytes` at `step`, the worst.

    `stretches` are all overfull steps, in order of time, `steps` how many there are; `members` whoever is
    alive at one of them, those at most steps first, then the largest. `single` has the buffers (ascending)
    that alone could make room: alive at every overfull step with enough bytes.
    """

    capacity: int
    nbytes: int
    step: int
    stretches: tuple[Stretch, ...]
    members: tuple[Member, ...]
    single: tuple[int, ...]

    @property
    def steps(self) -> int:
        """The number of overfull steps."""
        return sum(stretch.end - stretch.start for stretch in self.stretches)


def find_shortage(problem: Problem, capacity: int) -> Shortage | None:
    """The shortage of `capacity` bytes; None when the live bytes never pass it. O(n log n)."""
    load = load_of(problem)
    pieces, sections, live = load.pieces, load.sections, load.live
    over = np.flatnonzero(live > capacity)
    if not len(over):
        return None
    worst = over[int(np.argmax(live[over]))]
    return Shortage(
        capacity,
        int(live[worst]) - capacity,
        int(sections.bounds[worst]),
        _stretches(sections, live, over),
        _members(problem, pieces, sections, over),
        tuple(_single(problem, load, over, live - capacity).tolist()),
    )


def _stretches(sections: Sections, live: Ints, over: Ints) -> tuple[Stretch, ...]:
    """Overfull sections, those next to each other as one."""
    runs = np.split(over, np.flatnonzero(np.diff(over) > 1) + 1)
    bounds = sections.bounds
    return tuple(Stretch(int(bounds[run[0]]), int(bounds[run[-1] + 1]), int(live[run].max())) for run in runs)


def _members(problem: Problem, pieces: Pieces, sections: Sections, over: Ints) -> tuple[Member, ...]:
    widths = np.zeros(len(sections) + 1, dtype=np.int64)
    widths[over + 1] = np.diff(sections.bounds)[over]
    before = np.cumsum(widths)
    steps = np.zeros(len(problem), dtype=np.int64)
    held = (pieces.high > pieces.low) * (before[sections.last] - before[sections.first])
    np.add.at(steps, pieces.owner, held)
    rows = np.flatnonzero(steps)
    rows = rows[np.lexsort((rows, -problem.size[rows], -steps[rows]))]
    return tuple(Member(row, int(problem.size[row]), int(steps[row])) for row in rows.tolist())


def _single(problem: Problem, load: Load, over: Ints, excess: Ints) -> Ints:
    """Who holds, in every overfull section, at least what is too much there."""
    pieces, sections = load.pieces, load.sections
    first, last = int(sections.bounds[over[0]]), int(sections.bounds[over[-1]])
    spanning = (problem.start <= first) & (problem.end > last) & (problem.size >= excess[over].max())
    for buffer in [each for each in problem.gaps if spanning[each]]:
        own = range(int(pieces.first[buffer]), int(pieces.first[buffer + 1]))
        held = np.zeros(len(sections), dtype=np.int64)
        for piece in own:
            held[sections.first[piece] : sections.last[piece]] = pieces.high[piece] - pieces.low[piece]
        spanning[buffer] = bool((held[over] >= excess[over]).all())
    return np.flatnonzero(spanning)
