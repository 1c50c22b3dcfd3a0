"""Is a bound proved? Each certificate worked out anew, with nothing of the code that found it.

Of the kind CORE the claim is decided a second time, by another kind of search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from math import gcd

import numpy as np

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.kernels.verify.recheck import (
    ABOVE,
    IMPOSSIBLE,
    OPEN,
    PLACED,
    Disjunctions,
    Orders,
    decide_pairs,
)
from memplan_engine.problem import FREE, Ints, Problem

MOST_WORK = 4_000_000_000
"""Elementary steps after which a replay gives up: some seconds, the same on every machine."""
MOST_BUFFERS, MOST_PAIRS = 1_000, 20_000
MOST_BYTES = 2**60
"""Sizes that sum to less leave the kernel's sums below 2^63."""

Piece = tuple[int, int, int, int]
"""A stretch of a buffer's life: the steps `[start, end)`, and the bytes `[low, high)` of itself it holds."""


class Outcome(StrEnum):
    """What a replay found out."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNCHECKED = "not replayed"


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome after `nodes` of search. REFUTED comes with `offsets` of the core's buffers, in its order,
    that need fewer bytes than claimed; UNCHECKED with the `reason`."""

    outcome: Outcome
    nodes: int = 0
    offsets: tuple[int, ...] = ()
    reason: str = ""


def core_fault(problem: Problem, bound: Bound) -> str:
    """What is wrong with how a core is stated, without looking for placements; "" when nothing is."""
    core = np.array(bound.core, dtype=np.int64)
    if not len(core):
        return "the core names no buffer"
    if core[0] < 0 or core[-1] >= len(problem) or (np.diff(core) <= 0).any():
        return f"the core is no ascending list of indices below {len(problem)}"
    if not 0 <= bound.step < bound.until:
        return f"the core's window, from step {bound.step} to {bound.until}, holds no step"
    outside = (problem.start[core] >= bound.until) | (problem.end[core] <= bound.step)
    if outside.any():
        name = problem.names[core[int(np.argmax(outside))]]
        return f"{name} of the core is not live within steps {bound.step}–{bound.until - 1}"
    return ""


def replay(problem: Problem, bound: Bound, most_work: int = MOST_WORK) -> Replay:
    """Decide whether the buffers of a core (without `core_fault`) can be placed below `bound.nbytes`."""
    core = list(bound.core)
    too_many = f"the {len(core):,} buffers of its core are too many"
    if len(core) > MOST_BUFFERS:
        return Replay(Outcome.UNCHECKED, reason=too_many)
    columns = (problem.size[core], problem.alignment[core], np.maximum(problem.fixed[core], 0))
    enough = sum(sum(column.tolist()) for column in columns)
    if enough > MOST_BYTES:
        return Replay(Outcome.UNCHECKED, reason="the sizes of its core pass 2^60 bytes")
    # One above the other they need no more than `enough`, however much is claimed.
    room = min(bound.nbytes - 1, enough)
    ranges = _ranges(problem, core, room)
    if (ranges[0] > ranges[1]).any():
        return Replay(Outcome.PROVED)
    pieces = [_pieces(problem, buffer) for buffer in core]
    pairs, pair_of = _pairs(pieces)
    if len(pairs) > MOST_PAIRS:
        return Replay(Outcome.UNCHECKED, reason=too_many)
    if int(problem.size[core].sum()) > room and _in_pairs(problem.size[core], pairs):
        return Replay(Outcome.PROVED)
    first, members = _cliques(pieces)
    one, other, up, down = _columns(pairs, 4)
    member, low, high = _columns(members, 3)
    task = Disjunctions(*ranges, one, other, up, down, pair_of, first, member, low, high)
    orders = _initial_orders(problem, core, pairs)
    outcome, nodes, offsets = decide_pairs(task, orders, most_work, np.zeros(1, dtype=np.bool_))
    if outcome == IMPOSSIBLE:
        return Replay(Outcome.PROVED, nodes)
    if outcome == PLACED:
        return Replay(Outcome.REFUTED, nodes, tuple(offsets.tolist()))
    return Replay(Outcome.UNCHECKED, nodes, reason=f"more than {nodes:,} nodes")


def _ranges(problem: Problem, core: list[int], room: int) -> tuple[Ints, Ints, Ints]:
    """The lowest and the highest offset of each buffer, and what divides it; none where high < low."""
    size, fixed = problem.size[core], problem.fixed[core]
    unit = np.where(fixed == FREE, problem.alignment[core], 1)
    lowest = np.maximum(fixed, 0)
    highest = (room - size) // unit * unit
    return lowest, np.where(fixed == FREE, highest, np.where(fixed <= highest, fixed, -1)), unit


def _pieces(problem: Problem, buffer: int) -> list[Piece]:
    """What the buffer holds over time, without the stretches in which it holds nothing."""
    size, clock = int(problem.size[buffer]), int(problem.start[buffer])
    pieces = []
    for gap in problem.gaps.get(buffer, ()):
        pieces += [(clock, gap.start, 0, size), (gap.start, gap.end, gap.low, gap.high)]
        clock = gap.end
    pieces.append((clock, int(problem.end[buffer]), 0, size))
    return [(start, end, low, high) for start, end, low, high in pieces if start < end and low < high]


def _pairs(pieces: list[list[Piece]]) -> tuple[list[tuple[int, int, int, int]], Ints]:
    """(one, other, up, down) of each stretch of offsets that a pair excludes, and the pair of any two."""
    rows: list[tuple[int, int, int, int]] = []
    pair_of = np.full((len(pieces), len(pieces)), -1, dtype=np.int64)
    for one, other in combinations(range(len(pieces)), 2):
        # Other's offset less one's must lie outside each of these open intervals.
        excluded = sorted(
            (low - their_high, high - their_low)
            for start, end, low, high in pieces[one]
            for their_start, their_end, their_low, their_high in pieces[other]
            if start < their_end and their_start < end
        )
        merged: list[tuple[int, int]] = []
        for below, above in excluded:
            if merged and below < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], above))
            else:
                merged.append((below, above))
        if len(merged) == 1:
            pair_of[one, other] = pair_of[other, one] = len(rows)
        rows += [(one, other, above, -below) for below, above in merged]
    return rows, pair_of


def _in_pairs(size: Ints, pairs: list[tuple[int, int, int, int]]) -> bool:
    """Whether no two of the buffers can share a byte, so that all their sizes add up."""
    sizes = size.tolist()
    apart = [up == sizes[one] and down == sizes[other] for one, other, up, down in pairs]
    return apart.count(True) == len(sizes) * (len(sizes) - 1) // 2


def _cliques(pieces: list[list[Piece]]) -> tuple[Ints, list[tuple[int, int, int]]]:
    """The members (buffer, low, high) of each largest set that shares a step, one set behind the other."""
    steps = sorted({start for own in pieces for start, *_ in own})
    live = [
        frozenset(
            (buffer, low, high)
            for buffer, own in enumerate(pieces)
            for start, end, low, high in own
            if start <= step < end
        )
        for step in steps
    ]
    largest = [clique for clique in dict.fromkeys(live) if not any(clique < other for other in live)]
    first = np.cumsum([0, *map(len, largest)], dtype=np.int64)
    return first, [member for clique in largest for member in sorted(clique)]


def _initial_orders(problem: Problem, core: list[int], pairs: list[tuple[int, int, int, int]]) -> Orders:
    """Of buffers alike in everything the later one may lie above: to exchange them changes nothing. Those
    at one fixed offset are in each other's way in any case."""
    buffers = [replace(problem[buffer], name="") for buffer in core]
    alike = [buffers[one] == buffers[other] for one, other, _, _ in pairs]
    return np.where(alike, ABOVE, OPEN).astype(np.int8)


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[Ints]:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), width)
    return [np.ascontiguousarray(table[:, column]) for column in range(width)]


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
        f"the certificate ({bound.kind.words} at step {bound.step}) proves {proved} bytes, "
        f"the plan states {bound.nbytes}"
    )


def _replayed(problem: Problem, bound: Bound) -> Judgement:
    result = replay(problem, bound)
    who = f"{len(bound.core):,} buffers"
    if result.outcome is Outcome.PROVED:
        return Judgement(
            replayed=f"{who} cannot be placed below {bound.nbytes} bytes ({result.nodes:,} nodes)"
        )
    if result.outcome is Outcome.UNCHECKED:
        return Judgement(unchecked=(f"the certificate was not replayed: {result.reason}",))
    sizes = problem.size[list(bound.core)].tolist()
    top = max(offset + size for offset, size in zip(result.offsets, sizes, strict=True))
    positions = [
        f"{problem.names[b]} at {offset}" for b, offset in zip(bound.core, result.offsets, strict=True)
    ]
    shown = ", ".join(positions[:8]) + (", …" if len(positions) > 8 else "")
    fault = f"the core of {who} needs no {bound.nbytes} bytes, for {top} are enough: {shown}"
    return Judgement(fault, bound.core)


def proved_bytes(problem: Problem, bound: Bound) -> int:
    """The bytes that no placement can stay below, worked out anew from the certificate alone: O(n).

    Of a core this is not known without a search (`replay`), and what it claims is given back.
    """
    if bound.kind is BoundKind.CORE:
        return 0 if core_fault(problem, bound) else bound.nbytes
    live, low, high = _windows(problem, bound.step)
    if bound.kind is BoundKind.BETWEEN_FIXED:
        return _between(problem, bound, live, low, high)
    if bound.kind in (BoundKind.FIXED, BoundKind.LARGEST):
        if bound.kind is BoundKind.FIXED:
            live = live[problem.fixed[live] != FREE]
        base = problem.fixed[live] if bound.kind is BoundKind.FIXED else 0
        ends = base + problem.size[live]
        return bound.nbytes if (ends == bound.nbytes).any() else int(ends.max(initial=0))
    sizes = high - low
    if bound.kind is BoundKind.ALIGNED_LOAD and bound.unit >= 1:
        fixed = problem.fixed[live]
        whole = np.where(
            fixed == FREE,
            (problem.alignment[live] % bound.unit == 0) & (low % bound.unit == 0),
            (fixed + low) % bound.unit == 0,
        )
        units = [-(-size // bound.unit) * bound.unit for size in sizes[whole].tolist()]
        spare = [full - size for full, size in zip(units, sizes[whole].tolist(), strict=True)]
        return int(sum(units) - max(spare, default=0))
    return int(sizes.sum())


def _windows(problem: Problem, step: int) -> tuple[Ints, Ints, Ints]:
    """The buffers live at the step, and the bytes `[low, high)` of itself that each holds there."""
    low, high = np.zeros(len(problem), dtype=np.int64), problem.size.copy()
    for buffer, gaps in problem.gaps.items():
        for gap in gaps:
            if gap.start <= step < gap.end:
                low[buffer], high[buffer] = gap.low, gap.high
    live = np.flatnonzero((problem.start <= step) & (step < problem.end))
    return live, low[live], high[live]


def _between(problem: Problem, bound: Bound, live: Ints, low: Ints, high: Ints) -> int:
    """Walk up through the bytes that the fixed offsets leave free at the step, skipping what has no room for
    the smallest of the core, until all its bytes have found some."""
    spans = {int(b): (int(begin), int(end)) for b, begin, end in zip(live, low, high, strict=True)}
    if len(set(bound.core)) < len(bound.core) or any(
        buffer not in spans or problem.fixed[buffer] != FREE for buffer in bound.core
    ):
        return 0
    windows = [spans[buffer] for buffer in bound.core]
    sizes = [end - begin for begin, end in windows if begin < end]
    if len(sizes) < len(bound.core) or not sizes:
        return 0
    fixed = [(int(problem.fixed[b]), *spans[b]) for b in spans if problem.fixed[b] != FREE]
    occupied = sorted((offset + begin, offset + end) for offset, begin, end in fixed if begin < end)
    # Where the windows may begin: at multiples of all that divides them.
    unit = gcd(*problem.alignment[list(bound.core)].tolist(), *(begin for begin, _ in windows))
    remaining, clock, smallest = sum(sizes), 0, min(sizes)
    for begin, end in occupied:
        clock = -(-clock // unit) * unit
        if begin - clock >= smallest:
            if begin - clock >= remaining:
                return clock + max(remaining, smallest)
            remaining -= begin - clock
        clock = max(clock, end)
    clock = -(-clock // unit) * unit
    return clock + max(remaining, smallest)
