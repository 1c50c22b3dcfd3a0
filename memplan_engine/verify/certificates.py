"""Is a bound proved? Each certificate worked out anew, with nothing of the code that found it."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.verify.recheck_cores import Outcome, core_fault, replay


@dataclass(frozen=True, slots=True)
class Judgement:
    """`fault`: what is wrong with the certificate, "" when nothing is, and the buffers of the core that it
    concerns; `replayed` and `unchecked` as in `Report`."""

    fault: str = ""
    core: tuple[int, ...] = ()
    replayed: str = ""
    unchecked: tuple[str, ...] = ()


def check_certificate(problem: Problem, bound: Bound, *, replay: bool = True) -> Judgement:
    """Whether the certificate proves the bound; that of a core is replayed if `replay`."""
    if bound.kind is BoundKind.CORE:
        fault = core_fault(problem, bound)
        if fault:
            return Judgement(fault)
        return _replayed(problem, bound) if replay else Judgement()
    proved = proved_bytes(problem, bound)
    if proved == bound.nbytes:
        return Judgement()
    return Judgement(
        f"the certificate ({bound.kind} at step {bound.step}) proves {proved} bytes, "
        f"the plan states {bound.nbytes}"
    )


def _replayed(problem: Problem, bound: Bound) -> Judgement:
    found = replay(problem, bound)
    who = f"{len(bound.core):,} buffers"
    if found.outcome is Outcome.PROVED:
        return Judgement(
            replayed=f"{who} cannot be placed below {bound.nbytes} bytes ({found.nodes:,} nodes)"
        )
    if found.outcome is Outcome.UNCHECKED:
        return Judgement(unchecked=(f"the certificate was not replayed: {found.reason}",))
    sizes = problem.size[list(bound.core)].tolist()
    top = max(offset + size for offset, size in zip(found.offsets, sizes, strict=True))
    where = [f"{problem.names[b]} at {offset}" for b, offset in zip(bound.core, found.offsets, strict=True)]
    shown = ", ".join(where[:8]) + (", …" if len(where) > 8 else "")
    fault = f"the core of {who} needs no {bound.nbytes} bytes, for {top} are enough: {shown}"
    return Judgement(fault, bound.core)


def proved_bytes(problem: Problem, bound: Bound) -> int:
    """The bytes that no placement can stay below, worked out anew from the certificate alone: O(n).

    Of a core this is not known without a search (`recheck.replay`), and what it claims is given back.
    """
    if bound.kind is BoundKind.CORE:
        return 0 if core_fault(problem, bound) else bound.nbytes
    alive, low, high = _windows(problem, bound.step)
    if bound.kind is BoundKind.BETWEEN_FIXED:
        return _between(problem, bound, alive, low, high)
    if bound.kind in (BoundKind.FIXED, BoundKind.LARGEST):
        if bound.kind is BoundKind.FIXED:
            alive = alive[problem.fixed[alive] != FREE]
        base = problem.fixed[alive] if bound.kind is BoundKind.FIXED else 0
        ends = base + problem.size[alive]
        return bound.nbytes if (ends == bound.nbytes).any() else int(ends.max(initial=0))
    held = high - low
    if bound.kind is BoundKind.ALIGNED_LOAD and bound.unit >= 1:
        fixed = problem.fixed[alive]
        whole = np.where(
            fixed == FREE,
            (problem.alignment[alive] % bound.unit == 0) & (low % bound.unit == 0),
            (fixed + low) % bound.unit == 0,
        )
        units = [-(-size // bound.unit) * bound.unit for size in held[whole].tolist()]
        spare = [full - size for full, size in zip(units, held[whole].tolist(), strict=True)]
        return int(sum(units) - max(spare, default=0))
    return int(held.sum())


def _windows(problem: Problem, step: int) -> tuple[Ints, Ints, Ints]:
    """The buffers alive at the step, and the bytes `[low, high)` of itself that each holds there."""
    low, high = np.zeros(len(problem), dtype=np.int64), problem.size.copy()
    for buffer, gaps in problem.gaps.items():
        for gap in gaps:
            if gap.start <= step < gap.end:
                low[buffer], high[buffer] = gap.low, gap.high
    alive = np.flatnonzero((problem.start <= step) & (step < problem.end))
    return alive, low[alive], high[alive]


def _between(problem: Problem, bound: Bound, alive: Ints, low: Ints, high: Ints) -> int:
    """Walk up through the bytes that the fixed offsets leave free at the step, skipping what has no room for
    the smallest of the core, until all its bytes have found some."""
    held = {int(b): (int(begin), int(end)) for b, begin, end in zip(alive, low, high, strict=True)}
    if len(set(bound.core)) < len(bound.core) or any(
        buffer not in held or problem.fixed[buffer] != FREE for buffer in bound.core
    ):
        return 0
    windows = [held[buffer] for buffer in bound.core]
    sizes = [end - begin for begin, end in windows if begin < end]
    if len(sizes) < len(bound.core) or not sizes:
        return 0
    fixed = [(int(problem.fixed[b]), *held[b]) for b in held if problem.fixed[b] != FREE]
    taken = sorted((offset + begin, offset + end) for offset, begin, end in fixed if begin < end)
    # Where the windows may begin: at multiples of all that divides them.
    unit = gcd(*problem.alignment[list(bound.core)].tolist(), *(begin for begin, _ in windows))
    left, clock, smallest = sum(sizes), 0, min(sizes)
    for begin, end in taken:
        clock = -(-clock // unit) * unit
        if begin - clock >= smallest:
            if begin - clock >= left:
                return clock + max(left, smallest)
            left -= begin - clock
        clock = max(clock, end)
    clock = -(-clock // unit) * unit
    return clock + max(left, smallest)
