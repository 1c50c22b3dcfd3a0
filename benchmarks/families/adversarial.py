"""Instances on which a rule of thumb fails, with the optimum by construction.

Buffers of nearly equal sizes are an interval graph, and greedy by size then colours it first fit in the order
that the small differences dictate. First-fit colouring may take three colours on a path of four and four on a
caterpillar of eight, where two are enough: so do the arenas. Each colour class of the optimum is a band;
fillers on top of its buffers make it full, so that the optimum is LOAD.

Gadgets stand one behind the other, tied together by keepers that live all the time: nothing falls apart into
independent problems, and as a keeper can be cut out of a placement with all above it moved down, it adds its
size to the optimum, no more and no less.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from benchmarks.families.instance import Instance, Rectangle, from_rectangles

UNIT = 64
COARSE = 1 << 10


@dataclass(frozen=True, slots=True)
class _Part:
    """A buffer of a gadget: steps, its band in the optimum, and its turn in the order that does harm."""

    start: int
    end: int
    band: int
    turn: int


_PATH = (_Part(0, 2, 0, 0), _Part(1, 5, 1, 1), _Part(4, 7, 0, 2), _Part(6, 8, 1, 0))
"""a – b – c – d: a and d share a band, b goes above a, and c finds both taken."""

_SPINE = (_Part(0, 10, 0, 1), _Part(9, 20, 1, 2), _Part(19, 30, 0, 3), _Part(29, 40, 1, 1))
_LEGS = (_Part(3, 6, 1, 0), _Part(13, 16, 0, 0), _Part(23, 26, 1, 0), _Part(33, 36, 0, 0))
_CATERPILLAR = _SPINE + _LEGS
"""Each buffer of the spine overlaps a leg and its neighbours: the third meets the bands 0, 1 and 2."""

_NO_WAY_OUT = (
    (0, 1, 2, 3), (0, 2, 0, 2), (1, 3, 3, 1), (1, 4, 4, 1), (1, 5, 5, 1),
    (2, 3, 1, 1), (2, 4, 0, 1), (3, 5, 2, 2), (4, 5, 0, 2),
)  # fmt: skip
"""start, end, offset, size: LOAD 5 and optimum 6; example_graphs/teaching_no_way_out.csv says why."""


def path(copies: int, stack: int = 1) -> Instance:
    """Greedy by size needs nearly 3/2 of the optimum: paths of four, each buffer `stack` buffers high."""
    return _coloured("adversarial/path", _PATH, copies, stack)


def caterpillar(copies: int, stack: int = 1) -> Instance:
    """Greedy by size needs nearly twice the optimum: caterpillars of eight."""
    return _coloured("adversarial/caterpillar", _CATERPILLAR, copies, stack)


def _coloured(name: str, gadget: tuple[_Part, ...], copies: int, stack: int) -> Instance:
    """Gadgets one behind the other; the sizes of a band are COARSE less their turn, filled up to COARSE."""
    span = max(part.end for part in gadget)
    band_bytes = UNIT * COARSE
    rows: list[Rectangle] = []
    for copy in range(copies):
        for level in range(stack):
            for part in gadget:
                start, end = copy * span + part.start, copy * span + part.end
                offset = (part.band * stack + level) * band_bytes
                missing = UNIT * (part.turn * stack + level)
                rows.append((start, end, offset, band_bytes - missing))
                if missing:
                    rows.append((start, end, offset + band_bytes - missing, missing))
    optimum = 2 * stack * band_bytes
    keeper = UNIT
    rows.append((0, copies * span, optimum, keeper))
    return from_rectangles(f"{name}-{copies}x{stack}", rows, optimum + keeper)


def no_way_out(copies: int) -> Instance:
    """LOAD cannot be reached: the optimum is nearly 6/5 of it, and a proof takes a search."""
    rows = [
        (5 * copy + start, 5 * copy + end, UNIT * COARSE * offset, UNIT * COARSE * size)
        for copy in range(copies)
        for start, end, offset, size in _NO_WAY_OUT
    ]
    optimum = 6 * UNIT * COARSE
    rows.append((0, 5 * copies, optimum, UNIT))
    return from_rectangles(f"adversarial/no_way_out-{copies}", rows, optimum + UNIT)


def fragmenting(phases: int) -> Instance:
    """First fit in order of time needs 1 + phases/2 of the optimum: Robson's construction (1974).

    Phase 0 makes 2 × 4^phases buffers of one unit. Phase q then frees, of what first fit has put there, all
    that does not hold the last unit of an aligned 2^q, half of the bytes, and makes buffers of 2^q units for
    as many: every hole is too small for them. Knowing the future, one packs what leaves together.
    """
    whole = 2 * 4**phases
    clock, rows = 0, []
    begins: list[int] = []
    for phase in range(phases + 1):
        begins.append(clock)
        size = 2**phase
        base, count = (0, whole) if phase == 0 else (whole + (phase - 1) * whole // 2, whole // 2 // size)
        for place in range(count):
            address = base + place * size
            # The last phase that leaves it live.
            last = phase
            while last < phases and (address + size) % 2 ** (last + 1) == 0:
                last += 1
            rows.append((clock, last + 1, phase, size))
            clock += 1
    begins.append(clock)
    return from_rectangles(f"adversarial/fragmenting-{phases}", _pack(rows, begins, whole), UNIT * whole)


def _pack(rows: list[tuple[int, int, int, int]], begins: list[int], whole: int) -> list[Rectangle]:
    """The optimum of `fragmenting`: in each phase, what stays longest goes to the lowest free bytes."""
    placed: list[Rectangle] = []
    for phase in range(len(begins) - 1):
        taken = sorted((o, o + size) for start, end, o, size in placed if start < begins[phase] < end)
        low = 0
        free: list[int] = []
        for bottom, top in [*taken, (whole, whole)]:
            free.extend(range(low, bottom, 2**phase))
            low = top
        new = sorted((row for row in rows if row[2] == phase), key=lambda row: (-row[1], row[0]))
        placed += [
            (start, begins[leaves], offset, size)
            for (start, leaves, _, size), offset in zip(new, free, strict=True)
        ]
    return [(start, end, UNIT * offset, UNIT * size) for start, end, offset, size in placed]


def in_turn(*parts: Instance) -> Instance:
    """One part behind the other, sizes scaled to one height, tied together by a keeper: an order is as bad
    as on the part that it does worst on."""
    height = lcm(*(part.bound for part in parts))
    clock, rows = 0, []
    for part in parts:
        if part.witness is None:
            raise ValueError(f"{part.name}: no placement is known that meets the optimum")
        problem, scale = part.problem, height // part.bound
        columns = (problem.start + clock, problem.end + clock, scale * part.witness, scale * problem.size)
        rows += list(zip(*(column.tolist() for column in columns), strict=True))
        clock += problem.steps
    rows.append((0, clock, height, UNIT))
    return from_rectangles(f"adversarial/in_turn-{len(rows)}", rows, height + UNIT)
