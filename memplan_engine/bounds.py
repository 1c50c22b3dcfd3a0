"""Lower bounds on the arena, each with the certificate by which anybody can check it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.kernels.paint import cover_max
from memplan_engine.pieces import cut
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.profile import alive_at, cut_time, live_bytes, peak_step


class BoundKind(StrEnum):
    """The argument behind a bound."""

    LOAD = "load"
    ALIGNED_LOAD = "aligned load"
    FIXED = "fixed offset"
    CORE = "core"


@dataclass(frozen=True, slots=True)
class Bound:
    """No placement can need fewer than `nbytes` bytes, for the reason `kind`, seen at `step`.

    LOAD: the buffers alive at the step sum to it. ALIGNED_LOAD: every offset is a multiple of `unit`
    bytes, so all buffers alive at the step but the topmost fill whole units. FIXED: a buffer alive at the
    step has a fixed offset and ends there. CORE: the buffers `core` (indices, ascending), all alive at some
    of the steps `[step, until)`, cannot be placed in fewer bytes even without all others, as a search proved.
    """

    nbytes: int
    kind: BoundKind
    step: int
    unit: int = 1
    core: tuple[int, ...] = ()
    until: int = 0


def lower_bound(problem: Problem) -> Bound:
    """The best of the three bounds; the first of them when they are equal. O(n log n)."""
    pieces = cut(problem)
    sections = cut_time(problem, pieces)
    live = live_bytes(sections, pieces.high - pieces.low)
    bounds = [Bound(int(live.max(initial=0)), BoundKind.LOAD, peak_step(sections, live))]
    unit = offset_unit(problem)
    if unit > 1 and not problem.gaps:
        padding = -problem.size % unit
        needed = live_bytes(sections, problem.size + padding)
        # The topmost buffer need not fill its unit: grant each step the largest padding that is alive.
        needed -= cover_max(sections.first, sections.last, padding, len(sections))
        bounds.append(
            Bound(int(needed.max(initial=0)), BoundKind.ALIGNED_LOAD, peak_step(sections, needed), unit)
        )
    ends = np.where(problem.fixed != FREE, problem.fixed + problem.size, 0)
    if ends.any():
        last = int(np.argmax(ends))
        bounds.append(Bound(int(ends[last]), BoundKind.FIXED, int(problem.start[last])))
    return max(bounds, key=lambda bound: bound.nbytes)


def offset_unit(problem: Problem) -> int:
    """The largest number of bytes that divides every offset a placement may use."""
    offsets = problem.fixed[problem.fixed != FREE]
    alignments = problem.alignment[problem.fixed == FREE]
    return int(np.gcd.reduce(np.concatenate([offsets, alignments]))) or 1 if len(problem) else 1


def contributors(problem: Problem, bound: Bound) -> Ints:
    """The buffers that the certificate of `bound` names, largest first."""
    if bound.kind is BoundKind.CORE:
        core = np.array(bound.core, dtype=np.int64)
        return core[np.argsort(-problem.size[core], kind="stable")]
    if bound.kind is not BoundKind.FIXED:
        return alive_at(problem, bound.step)
    # Not `alive_at`: a buffer without bytes, or one that begins in a gap, bounds the arena as well.
    alive = (problem.start <= bound.step) & (bound.step < problem.end)
    ends_there = problem.fixed + problem.size == bound.nbytes
    return np.flatnonzero(alive & ends_there & (problem.fixed != FREE))[:1]
