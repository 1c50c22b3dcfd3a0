"""Lower bounds on the arena, each with the certificate by which anybody can check it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import gcd

import numpy as np

from memplan_engine.kernels.plotting.paint import cover_max
from memplan_engine.kernels.types import Flags
from memplan_engine.problem import FREE, Ints, Pieces, Problem
from memplan_engine.profile import Sections, live_at, live_bytes, load_of, peak_step, windows_at

MOST_UNITS = 16
MOST_STEPS = 32
MOST_GROUPS = 16


class BoundKind(StrEnum):
    """The argument behind a bound."""

    LOAD = "load"
    ALIGNED_LOAD = "aligned load"
    FIXED = "fixed offset"
    LARGEST = "largest buffer"
    BETWEEN_FIXED = "load between fixed offsets"
    CORE = "core"

    @property
    def words(self) -> str:
        """The argument as people are told of it; what stands in files is the value."""
        return _ARGUMENTS.get(self, str(self))


_ARGUMENTS = {
    BoundKind.LOAD: "peak live bytes",
    BoundKind.ALIGNED_LOAD: "peak live bytes, aligned",
    BoundKind.BETWEEN_FIXED: "live bytes between fixed offsets",
}


@dataclass(frozen=True, slots=True)
class Bound:
    """No placement can need fewer than `nbytes` bytes, for the reason `kind`, seen at `step`.

    LOAD: the buffers live at the step sum to it. ALIGNED_LOAD: those live at the step whose bytes can only
    begin at multiples of `unit` bytes fill whole units, all but the topmost. FIXED: a buffer live at the
    step has a fixed offset and ends there. LARGEST: a buffer live at the step has that many bytes, though
    gaps keep it from holding all of them at once. BETWEEN_FIXED: the buffers `core`, live at the step, are
    as large as the smallest of them or larger, so they can only lie in the holes between fixed offsets that
    have room for that one, and above. CORE: the buffers `core`, all live at some of the steps
    `[step, until)`, cannot be placed in fewer bytes even without all others, as a search proved.
    `core` has indices, ascending.
    """

    nbytes: int
    kind: BoundKind
    step: int
    unit: int = 1
    core: tuple[int, ...] = ()
    until: int = 0


def lower_bound(problem: Problem) -> Bound:
    """The best bound without a search; the first kind of equals. O(n log n), one million buffers in 2 s, and
    once a problem."""
    return problem.once(_lower_bound)


def _lower_bound(problem: Problem) -> Bound:
    load = load_of(problem)
    pieces, sections = load.pieces, load.sections
    best = Bound(load.peak, BoundKind.LOAD, load.peak_step)
    best = better(best, _aligned(problem, pieces, sections, best.nbytes))
    best = better(best, _end(problem, np.where(problem.fixed != FREE, problem.fixed + problem.size, 0)))
    if problem.gaps:
        largest = _end(problem, problem.size, BoundKind.LARGEST)
        best = better(best, largest)
    if (problem.fixed != FREE).any():
        best = better(best, _between_fixed(problem, pieces, sections, best.nbytes))
    return best


def better(one: Bound, other: Bound | None) -> Bound:
    """The larger of two bounds, `one` of equals."""
    return one if other is None or other.nbytes <= one.nbytes else other


def _end(problem: Problem, ends: Ints, kind: BoundKind = BoundKind.FIXED) -> Bound | None:
    """The largest of `ends`, a value a buffer."""
    if not ends.any():
        return None
    last = int(np.argmax(ends))
    return Bound(int(ends[last]), kind, int(problem.start[last]))


def _aligned(problem: Problem, pieces: Pieces, sections: Sections, least: int) -> Bound | None:
    """The best bound in whole units that passes `least` bytes."""
    best = None
    size, begins = pieces.high - pieces.low, _begins(problem, pieces)
    for unit in _units(problem):
        counted = np.where(begins % unit == 0, size, 0)
        padding = -counted % unit
        needed = live_bytes(sections, counted + padding)
        if int(needed.max(initial=0)) <= least:
            continue
        # The topmost buffer need not fill its unit: grant each step the largest padding that is live.
        needed -= cover_max(sections.first, sections.last, padding, len(sections))
        nbytes = int(needed.max(initial=0))
        if nbytes > least:
            best, least = Bound(nbytes, BoundKind.ALIGNED_LOAD, peak_step(sections, needed), unit), nbytes
    return best


def _begins(problem: Problem, pieces: Pieces) -> Ints:
    """A number for each piece: what divides it divides every byte at which the piece may begin."""
    fixed = problem.fixed[pieces.owner]
    return np.where(fixed == FREE, np.gcd(problem.alignment[pieces.owner], pieces.low), fixed + pieces.low)


def _units(problem: Problem) -> list[int]:
    """Units worth counting in: the alignments that are asked for and what divides several of them."""
    alignments, counts = np.unique(problem.alignment[problem.fixed == FREE], return_counts=True)
    units = set(alignments[np.argsort(-counts, kind="stable")][:MOST_UNITS].tolist())
    units |= {gcd(one, other) for one, other in combinations(units, 2)}
    return sorted({*sorted(units, reverse=True)[:MOST_UNITS], offset_unit(problem)} - {1})


def offset_unit(problem: Problem) -> int:
    """The largest number of bytes that divides every offset a placement may use."""
    offsets = problem.fixed[problem.fixed != FREE]
    alignments = problem.alignment[problem.fixed == FREE]
    return int(np.gcd.reduce(np.concatenate([offsets, alignments]))) or 1


def _between_fixed(problem: Problem, pieces: Pieces, sections: Sections, least: int) -> Bound | None:
    """The best bound from the holes between fixed offsets that passes `least` bytes, at least LOAD and the
    largest end of a fixed buffer; at the MOST_STEPS steps that promise most."""
    fixed = problem.fixed[pieces.owner]
    size = pieces.high - pieces.low
    free = live_bytes(sections, np.where(fixed == FREE, size, 0))
    top = cover_max(
        sections.first, sections.last, np.where(fixed == FREE, 0, fixed + pieces.high), len(sections)
    )
    # Where only one of the two is there, it is no more than `least`.
    promise = top + free
    begins, best = _begins(problem, pieces), None
    for section in np.argsort(-promise, kind="stable")[:MOST_STEPS]:
        # A hole may cost less than a unit more than its bytes; that is not worth a look of its own.
        if promise[section] <= least:
            break
        live = np.flatnonzero((sections.first <= section) & (section < sections.last) & (size > 0))
        held = live[fixed[live] != FREE]
        holes = _holes(fixed[held] + pieces.low[held], fixed[held] + pieces.high[held])
        loose = live[fixed[live] == FREE]
        loose = loose[np.argsort(-size[loose], kind="stable")]
        for count in np.unique(np.geomspace(1, len(loose), MOST_GROUPS).astype(np.int64)):
            group = loose[:count]
            nbytes = _fill(holes, size[group], int(np.gcd.reduce(begins[group])))
            if nbytes > least:
                core = tuple(np.sort(pieces.owner[group]).tolist())
                best, least = (
                    Bound(nbytes, BoundKind.BETWEEN_FIXED, int(sections.bounds[section]), 1, core),
                    nbytes,
                )
    return best


def _holes(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Begin and end of the stretches that the byte ranges leave free, from byte 0 on; the last has no end."""
    order = np.argsort(low, kind="stable")
    begin = np.concatenate([[0], np.maximum.accumulate(high[order])])
    return begin, np.concatenate([low[order], [np.iinfo(np.int64).max]])


def _fill(holes: tuple[Ints, Ints], size: Ints, unit: int) -> int:
    """How high buffers of `size` bytes, beginning at multiples of `unit`, must reach if all that counts is
    that a hole has room for the smallest of them."""
    smallest, total = int(size.min()), int(size.sum())
    begin = -(-holes[0] // unit) * unit
    room = holes[1] - begin
    useful = np.flatnonzero(room >= smallest)
    filled = np.cumsum(np.minimum(room[useful], total))
    last = int(np.searchsorted(filled, total))
    remaining = total - (int(filled[last - 1]) if last else 0)
    return int(begin[useful[last]]) + max(remaining, smallest)


def contributors(problem: Problem, bound: Bound) -> Ints:
    """The buffers that the certificate of `bound` names, largest first."""
    if bound.kind in (BoundKind.CORE, BoundKind.BETWEEN_FIXED):
        core = np.array(bound.core, dtype=np.int64)
        if bound.kind is BoundKind.BETWEEN_FIXED:
            buffers = live_at(problem, bound.step)
            core = np.sort(np.concatenate([core, buffers[problem.fixed[buffers] != FREE]]))
        return core[np.argsort(-problem.size[core], kind="stable")]
    if bound.kind in (BoundKind.LOAD, BoundKind.ALIGNED_LOAD):
        buffers = live_at(problem, bound.step)
        return buffers[_in_units(problem, bound, buffers)]
    # Not `live_at`: a buffer without bytes, or one that begins in a gap, bounds the arena as well.
    live = (problem.start <= bound.step) & (bound.step < problem.end)
    ends = np.where(problem.fixed != FREE, problem.fixed + problem.size, FREE)
    if bound.kind is BoundKind.LARGEST:
        ends = problem.size
    return np.flatnonzero(live & (ends == bound.nbytes))[:1]


def _in_units(problem: Problem, bound: Bound, buffers: Ints) -> Flags:
    """Which of `buffers` have bytes that can only begin at multiples of the bound's unit at its step."""
    low = windows_at(problem, bound.step)[0][buffers]
    fixed, alignment = problem.fixed[buffers], problem.alignment[buffers]
    begins = np.where(fixed == FREE, np.gcd(alignment, low), fixed + low)
    whole: Flags = begins % bound.unit == 0
    return whole
