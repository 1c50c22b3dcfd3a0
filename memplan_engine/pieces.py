"""Buffers with gaps, cut into the rectangles that they really occupy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.problem import Gap, Ints, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Rectangles of time × bytes: piece p belongs to buffer `owner[p]`, is there in the steps
    `[start[p], end[p])` and takes the bytes `[low[p], high[p])` counted from its owner's offset.

    `first` has n + 1 entries: the pieces of buffer b are `first[b] … first[b + 1] − 1`, in order of time.
    A buffer without gaps is one piece with low 0 and high = size.
    """

    first: Ints
    owner: Ints
    start: Ints
    end: Ints
    low: Ints
    high: Ints


def cut(problem: Problem) -> Pieces:
    """The pieces of every buffer, in buffer order; all columns are int64 arrays. Cut once a problem."""
    return problem.once(_cut)


def _cut(problem: Problem) -> Pieces:
    n = len(problem)
    if not problem.gaps:
        whole = np.arange(n + 1, dtype=np.int64)
        low = np.zeros(n, dtype=np.int64)
        return Pieces(whole, whole[:n], problem.start, problem.end, low, problem.size)
    rows: list[tuple[int, int, int, int, int]] = []
    counts = np.ones(n, dtype=np.int64)
    for buffer, gaps in problem.gaps.items():
        own = _cut_one(buffer, problem, gaps)
        counts[buffer] = len(own)
        rows.extend(own)
    whole_ids = np.setdiff1d(np.arange(n), np.fromiter(problem.gaps, dtype=np.int64))
    whole_rows = np.column_stack(
        [
            whole_ids,
            problem.start[whole_ids],
            problem.end[whole_ids],
            np.zeros_like(whole_ids),
            problem.size[whole_ids],
        ]
    )
    table = np.concatenate([whole_rows, np.array(rows, dtype=np.int64).reshape(-1, 5)])
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    first = np.concatenate([[0], np.cumsum(counts)])
    owner, start, end, low, high = (np.ascontiguousarray(table[:, column]) for column in range(5))
    return Pieces(first, owner, start, end, low, high)


def _cut_one(buffer: int, problem: Problem, gaps: tuple[Gap, ...]) -> list[tuple[int, int, int, int, int]]:
    size, end, clock = int(problem.size[buffer]), int(problem.end[buffer]), int(problem.start[buffer])
    pieces = []
    for gap in gaps:
        if clock < gap.start:
            pieces.append((buffer, clock, gap.start, 0, size))
        if gap.low < gap.high:
            pieces.append((buffer, gap.start, gap.end, gap.low, gap.high))
        clock = gap.end
    if clock < end:
        pieces.append((buffer, clock, end, 0, size))
    return pieces
