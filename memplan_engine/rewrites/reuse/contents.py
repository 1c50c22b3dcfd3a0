"""What every byte of a memory holds, by name of the write that put it there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

UNDEFINED = -1
"""The write of bytes that nothing has written yet."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes `[low, high)` of what was asked for hold the bytes of the write `write` from its byte `at`
    on."""

    low: int
    high: int
    write: int
    at: int


class Contents:
    """A memory as runs of bytes, each from one write. Run r begins at `_starts[r]` and ends where the next
    one begins; `_runs[r]` is its write, and the address at which byte 0 of that write would lie."""

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._runs: list[tuple[int, int]] = [(UNDEFINED, 0)]

    def write(self, low: int, high: int, write: int, at: int = 0) -> None:
        """Put the bytes of `write` from `at` on into the addresses `[low, high)`."""
        if low >= high:
            return
        first, last = bisect_left(self._starts, low), bisect_right(self._starts, high)
        before = self._runs[last - 1]
        starts, runs = [low], [(write, low - at)]
        if last == 0 or self._starts[last - 1] != high:
            starts.append(high)
            runs.append(before)
        else:
            last -= 1
        self._starts[first:last] = starts
        self._runs[first:last] = runs

    def read(self, low: int, high: int) -> list[Piece]:
        """What the addresses `[low, high)` hold, counted from `low`, in as few pieces as possible."""
        pieces: list[Piece] = []
        if low >= high:
            return pieces
        place = max(0, bisect_right(self._starts, low) - 1)
        while place < len(self._starts) and self._starts[place] < high:
            begin = max(low, self._starts[place])
            end = min(high, self._starts[place + 1]) if place + 1 < len(self._starts) else high
            write, origin = self._runs[place]
            at = begin - origin if write != UNDEFINED else 0
            last = pieces[-1] if pieces else None
            if (
                last is not None
                and last.write == write
                and (write == UNDEFINED or last.at + last.high - last.low == at)
            ):
                pieces[-1] = Piece(last.low, end - low, write, last.at)
            else:
                pieces.append(Piece(begin - low, end - low, write, at))
            place += 1
        return pieces


def first_difference(meant: list[Piece], found: list[Piece]) -> tuple[int, int] | None:
    """The first byte at which `found` is not what is meant, and the write that is found there; bytes that
    are undefined in `meant` may be anything. None when all is as meant."""
    place = 0
    for piece in meant:
        while place < len(found) and found[place].high <= piece.low:
            place += 1
        scan = place
        while scan < len(found) and found[scan].low < piece.high:
            other = found[scan]
            low = max(piece.low, other.low)
            same = other.write == piece.write and other.at - other.low == piece.at - piece.low
            if piece.write != UNDEFINED and not same:
                return low, other.write
            scan += 1
    return None
