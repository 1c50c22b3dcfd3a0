"""Independent parts of a problem, as the branch-and-bound kernel wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memplan_engine.kernels.exact.branch_state import Part
from memplan_engine.problem import FREE, Ints, Pieces, Problem, cut

MOST_BUFFERS = 6_000
"""Parts with more are not searched: neighbours are kept as pairs, and their number is quadratic."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A part without a capacity: `rows` of its problem in the kernel's order, and their columns in units of
    `unit` bytes. `lows` are the fixed offsets, 0 for all others; units."""

    problem: Problem
    rows: Ints
    unit: int
    part: Part
    lows: Ints
    step: int

    def within(self, capacity: int) -> Part:
        """The part with offsets limited by `capacity` bytes."""
        problem, rows = self.problem, self.rows
        fixed = problem.fixed[rows]
        latest = np.where(fixed != FREE, fixed, capacity - problem.size[rows]) // self.unit
        ends = latest + self.part.size
        cap = np.maximum.reduceat(ends[self.part.members], self.part.members_of[:-1])
        return self.part._replace(latest=latest, cap=np.ascontiguousarray(cap))


def independent(problem: Problem) -> Iterator[Ints]:
    """The rows of each independent part: the time axis is cut where nothing is alive. Buffers without bytes
    belong to none."""
    rows = np.flatnonzero(problem.size > 0)
    rows = rows[np.argsort(problem.start[rows], kind="stable")]
    if len(rows):
        reach = np.maximum.accumulate(problem.end[rows])
        cuts = np.flatnonzero(problem.start[rows][1:] >= reach[:-1]) + 1
        yield from np.split(rows, cuts)


def make_columns(problem: Problem, relaxed: bool = False) -> Columns:
    """The columns of a part, `problem`, whose buffers all have bytes.

    The kernel knows only whole buffers and none. A gap in which a buffer still needs some of its bytes counts
    as full, which finds placements that are valid; if `relaxed` as empty, which proves bounds that hold.
    """
    pieces = _whole_pieces(problem, relaxed)
    first, last, count = _cliques(pieces)
    begin = np.full(len(problem), count)
    finish = np.zeros(len(problem), dtype=np.int64)
    np.minimum.at(begin, pieces.owner, first)
    np.maximum.at(finish, pieces.owner, last)
    rows = np.lexsort((-finish, begin))
    # Without any piece a buffer needs no bytes at all here.
    rows = rows[begin[rows] < finish[rows]]
    place = np.full(len(problem), -1)
    place[rows] = np.arange(len(rows))
    owner = np.repeat(place[pieces.owner], last - first)
    clique = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)] or [first])
    by_owner, by_clique = np.lexsort((clique, owner)), np.lexsort((owner, clique))
    near_of, near = _neighbours(begin[rows], finish[rows], clique[by_clique], owner[by_clique])
    unit, alignment, size = _units(problem, rows)
    fixed = problem.fixed[rows]
    part = Part(
        first=begin[rows],
        last=finish[rows],
        size=size,
        alignment=alignment,
        latest=np.zeros(len(rows), dtype=np.int64),
        cliques_of=np.searchsorted(owner[by_owner], np.arange(len(rows) + 1)),
        cliques=clique[by_owner],
        near_of=near_of,
        near=near,
        members_of=np.searchsorted(clique[by_clique], np.arange(count + 1)),
        members=owner[by_clique],
        begins=np.searchsorted(begin[rows], np.arange(count + 1)),
        cap=np.zeros(count, dtype=np.int64),
        # Sizes rounded up to units may end at different heights: nothing could be exchanged there.
        plain=not (problem.gaps or (problem.size[rows] % unit).any())
        and bool((fixed == FREE).all() and (alignment == 1).all()),
    )
    step = unit if not (problem.size % unit).any() else 1
    return Columns(problem, rows, unit, part, np.where(fixed != FREE, fixed // unit, 0), step)


def _whole_pieces(problem: Problem, relaxed: bool) -> Pieces:
    pieces = cut(problem)
    if not problem.gaps:
        return pieces
    whole = pieces.high - pieces.low == problem.size[pieces.owner]
    kept = whole if relaxed else pieces.high > pieces.low
    columns = (getattr(pieces, key)[kept] for key in ("owner", "start", "end", "low", "high"))
    return Pieces(pieces.first, *columns)


def _cliques(pieces: Pieces) -> tuple[Ints, Ints, int]:
    """First and last clique (half-open) of each piece, and how many cliques there are: only sections that
    begin with a start and end with an end, as all others hold no more than one of these."""
    # Not the sections of the problem: those are cut, too, where a lifetime begins or ends in a gap.
    bounds = np.unique(np.concatenate([pieces.start, pieces.end]))
    first, last = np.searchsorted(bounds, pieces.start), np.searchsorted(bounds, pieces.end)
    starts, ends = (np.zeros(len(bounds), dtype=bool) for _ in "12")
    starts[first] = True
    ends[last] = True
    largest = starts[:-1] & ends[1:]
    number = np.concatenate([[0], np.cumsum(largest)])
    return number[first], number[last], int(largest.sum())


def _neighbours(first: Ints, last: Ints, clique: Ints, owner: Ints) -> tuple[Ints, Ints]:
    """Who shares a clique with whom: those of buffer u from entry u to entry u + 1."""
    n = len(first)
    if len(owner) == (last - first).sum():
        together = (first[:, None] < last) & (first < last[:, None])
    else:
        # Cliques in which a buffer has a gap do not count.
        together = np.zeros((n, n), dtype=bool)
        for members in np.split(owner, np.flatnonzero(np.diff(clique)) + 1):
            together[np.ix_(members, members)] = True
    np.fill_diagonal(together, False)
    # A column of its own: numba compiles once for each layout, and numpy gives now one, now another.
    near = np.ascontiguousarray(np.nonzero(together)[1])
    return np.concatenate([[0], np.cumsum(together.sum(axis=1))]), near


def _units(problem: Problem, rows: Ints) -> tuple[int, Ints, Ints]:
    """The bytes that divide every offset of a placement pushed down, and alignments and sizes in them."""
    size, alignment, fixed = problem.size[rows], problem.alignment[rows], problem.fixed[rows]
    offsets = fixed[fixed != FREE]
    # 1 where no buffer is left.
    unit = int(np.gcd.reduce(np.concatenate([size, offsets]))) or 1
    if (unit % alignment == 0).all():
        return unit, np.ones_like(size), size // unit
    unit = int(np.gcd.reduce(np.concatenate([alignment, offsets])))
    return unit, alignment // unit, -(-size // unit)
