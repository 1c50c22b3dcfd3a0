"""Perfect packings: a rectangle of time × bytes cut into pieces; the optimum is LOAD, at every step."""

from __future__ import annotations

import heapq
from random import Random

from benchmarks.families.instance import Instance, Rectangle, from_rectangles

UNIT = 1024


def guillotine(
    count: int, seed: int, *, steps: int | None = None, units: int = 4096, even: bool = False
) -> Instance:
    """`count` buffers cut out of `steps` × `units` KiB by full cuts, each of one piece into two.

    The piece to be cut is any one, which gives sizes and lifetimes over several orders of magnitude, or,
    when `even`, always the one with the largest area. Raises ValueError when there is not room for `count`.
    """
    random = Random(seed)
    steps = steps or max(256, 2 * count)
    cutter = _Cutter((0, steps, 0, units), random, even)
    while len(cutter) < count:
        cutter.replace(_cut_in_two(cutter.take(), random, steps, units))
    return _finish(f"perfect/{'even' if even else 'guillotine'}-{count}-s{seed}", cutter, units, seed)


def pinwheel(count: int, seed: int, *, steps: int | None = None, units: int = 4096) -> Instance:
    """`count` buffers in which no full cut separates the pieces: each is split into four blades around a
    centre, as long as that does not make too many; the last few are cut in two."""
    random = Random(seed)
    steps = steps or max(256, 2 * count)
    cutter = _Cutter((0, steps, 0, units), random, even=True)
    while len(cutter) < count:
        piece = cutter.take()
        wide = piece[1] - piece[0] >= 3 and piece[3] >= 3
        # `take` removed one piece: five in its place make four more.
        if wide and len(cutter) + 5 <= count:
            cutter.replace(_cut_in_five(piece, random))
        else:
            cutter.replace(_cut_in_two(piece, random, steps, units))
    return _finish(f"perfect/pinwheel-{count}-s{seed}", cutter, units, seed)


class _Cutter:
    """The pieces so far: those that can still be cut, and those of one step and one unit."""

    def __init__(self, whole: Rectangle, random: Random, even: bool) -> None:
        self._random, self._even = random, even
        self._waiting: list[tuple[int, Rectangle]] = []
        self._done: list[Rectangle] = []
        self.replace([whole])

    def __len__(self) -> int:
        return len(self._waiting) + len(self._done)

    def take(self) -> Rectangle:
        """Remove the piece that is to be cut next."""
        if not self._waiting:
            raise ValueError("every piece is one step by one unit: too few steps or units for the count")
        if self._even:
            return heapq.heappop(self._waiting)[1]
        place = self._random.randrange(len(self._waiting))
        self._waiting[place], self._waiting[-1] = self._waiting[-1], self._waiting[place]
        return self._waiting.pop()[1]

    def replace(self, parts: list[Rectangle]) -> None:
        """Put back what the piece was cut into."""
        for part in parts:
            area = (part[1] - part[0]) * part[3]
            if area == 1:
                self._done.append(part)
            elif self._even:
                heapq.heappush(self._waiting, (-area, part))
            else:
                self._waiting.append((-area, part))

    def pieces(self) -> list[Rectangle]:
        return sorted(self._done + [part for _, part in self._waiting])


def _cut_in_two(piece: Rectangle, random: Random, steps: int, units: int) -> list[Rectangle]:
    start, end, offset, size = piece
    # The side that is longer, measured by the whole rectangle's, is the likelier one to be cut.
    in_time, in_bytes = (end - start) / steps, size / units
    across_time = end - start > 1 and (size == 1 or random.random() * (in_time + in_bytes) < in_time)
    if across_time:
        at = random.randrange(start + 1, end)
        return [(start, at, offset, size), (at, end, offset, size)]
    low = random.randrange(1, size)
    return [(start, end, offset, low), (start, end, offset + low, size - low)]


def _cut_in_five(piece: Rectangle, random: Random) -> list[Rectangle]:
    """Four blades around a centre; `wide` and `high` are how thick the upright and the flat blades are."""
    start, end, offset, size = piece
    wide = random.randint(1, (end - start - 1) // 2)
    high = random.randint(1, (size - 1) // 2)
    return [
        (start, end - wide, offset, high),
        (end - wide, end, offset, size - high),
        (start + wide, end, offset + size - high, high),
        (start, start + wide, offset + high, size - high),
        (start + wide, end - wide, offset + high, size - 2 * high),
    ]


def _finish(name: str, cutter: _Cutter, units: int, seed: int) -> Instance:
    rows = [(start, end, UNIT * offset, UNIT * size) for start, end, offset, size in cutter.pieces()]
    return from_rectangles(name, rows, UNIT * units, seed)
