"""Shared objects: whole pieces of memory, each used by one buffer after the other.

Which objects are taken over a lifetime is read from the buffers that have one. They stand sorted by start, so
that those of at most `width` steps which meet a lifetime are a window of them; the few that are longer stand
in a list of their own, which is read from end to end.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.trace import Trace, begin_step, end_step, note, take_noted
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

NOBODY = -1


@kernel
def assign_in_order(
    order: Ints,
    by_start: Ints,
    start: Ints,
    end: Ints,
    size: Ints,
    stop: Flags,
    trace: Trace | None = None,
) -> Ints:
    """The object of each buffer when each, in `order`, takes the smallest free object that is large enough,
    else the largest free one, which grows, else a new one; the object made first of equals.

    `by_start` has the buffers by start. NOBODY for those that were left when `stop` was raised. `trace` gets
    the objects that were looked at: number, bytes, bytes once more, and 1 where it is free.
    """
    n = len(start)
    chosen = np.full(n, NOBODY, dtype=np.int64)
    width = _window(start, end)
    starts, ends = start[by_start], end[by_start]
    rank = np.empty(n, dtype=np.int64)
    rank[by_start] = np.arange(n)
    # The object of the buffer at each rank; the ranks of the long ones; who found an object taken last.
    object_at_rank, long, longs = np.full(n, NOBODY, dtype=np.int64), np.empty(n, dtype=np.int64), 0
    object_size, met_by = np.empty(n, dtype=np.int64), np.full(n, NOBODY, dtype=np.int64)
    count = 0
    for buffer in order:
        if stop[0]:
            return chosen
        first = np.searchsorted(starts, start[buffer] - width, side="right")
        last = np.searchsorted(starts, end[buffer], side="left")
        for row in range(first, last):
            if object_at_rank[row] != NOBODY and ends[row] > start[buffer]:
                met_by[object_at_rank[row]] = buffer
        for place in range(longs):
            row = long[place]
            if starts[row] < end[buffer] and ends[row] > start[buffer]:
                met_by[object_at_rank[row]] = buffer
        if trace is not None:
            begin_step(trace, buffer)
        best = _best_free(object_size, met_by, count, buffer, size[buffer], trace)
        if best == NOBODY:
            best = count
            object_size[best] = size[buffer]
            count += 1
        object_size[best] = max(object_size[best], size[buffer])
        chosen[buffer] = object_at_rank[rank[buffer]] = best
        if trace is not None:
            end_step(trace, best, 0)
        if end[buffer] - start[buffer] > width:
            long[longs] = rank[buffer]
            longs += 1
    return chosen


@kernel
def _best_free(
    object_size: Ints, met_by: Ints, count: int, buffer: int, size: int, trace: Trace | None
) -> int:
    """Of the objects that `buffer` did not meet the smallest of at least `size` bytes, else the largest."""
    best, best_size = NOBODY, -1
    for other in range(count):
        if trace is not None:
            free = met_by[other] != buffer
            note(trace, other, object_size[other], object_size[other], free, free)
        if met_by[other] == buffer:
            continue
        other_size = object_size[other]
        better = other_size > best_size if best_size < size else size <= other_size < best_size
        if better:
            best, best_size = other, other_size
            if trace is not None:
                take_noted(trace)
    return best


@kernel
def _window(start: Ints, end: Ints) -> int:
    """The width, in steps, with the fewest buffers to read: those that are longer, and those that start in
    the window."""
    n = len(start)
    if n == 0:
        return 1
    length = np.sort(end - start)
    steps = float(end.max() - start.min())
    best_width, best_work = length[n - 1], np.inf
    # Up to 2^62: twice that is no number of steps any more.
    for power in range(63):
        width = 1 << power
        if width // 2 >= length[n - 1]:
            break
        longer = n - np.searchsorted(length, width, side="right")
        work = longer + n * min(1.0, width / steps)
        if work < best_work:
            best_width, best_work = width, work
    return best_width


@kernel
def assign_from_pool(
    order: Ints,
    by_end: Ints,
    start: Ints,
    end: Ints,
    size: Ints,
    stop: Flags,
    trace: Trace | None = None,
) -> Ints:
    """The object of each buffer when each, in `order` of start, takes from the pool of free objects the one
    of the closest size: of the smallest that is large enough and the largest that is not, the large one when
    they are equally close. `by_end` has the buffers by end.

    NOBODY for those that were left when `stop` was raised. `trace` gets the pool: number, bytes, how far they
    are from those of the buffer, and 1.
    """
    n = len(start)
    chosen = np.full(n, NOBODY, dtype=np.int64)
    # The pool: bytes and object, sorted.
    pool, free = np.empty((n + 1, 2), dtype=np.int64), 0
    object_size, count, ended = np.empty(n, dtype=np.int64), 0, 0
    for buffer in order:
        if stop[0]:
            return chosen
        while ended < n and end[by_end[ended]] <= start[buffer]:
            freed = chosen[by_end[ended]]
            ended += 1
            row = free
            while row > 0 and (
                pool[row - 1, 0] > object_size[freed]
                or (pool[row - 1, 0] == object_size[freed] and pool[row - 1, 1] > freed)
            ):
                pool[row, 0], pool[row, 1] = pool[row - 1, 0], pool[row - 1, 1]
                row -= 1
            pool[row, 0], pool[row, 1] = object_size[freed], freed
            free += 1
        if trace is not None:
            begin_step(trace, buffer)
        if free == 0:
            chosen[buffer], object_size[count] = count, size[buffer]
            if trace is not None:
                end_step(trace, count, 0)
            count += 1
            continue
        row = np.searchsorted(pool[:free, 0], size[buffer])
        if row == free or (row > 0 and size[buffer] - pool[row - 1, 0] < pool[row, 0] - size[buffer]):
            row -= 1
        assigned = pool[row, 1]
        if trace is not None:
            _note_pool(trace, pool, free, row, size[buffer])
            end_step(trace, assigned, 0)
        chosen[buffer] = assigned
        object_size[assigned] = max(object_size[assigned], size[buffer])
        for other in range(row, free - 1):
            pool[other, 0], pool[other, 1] = pool[other + 1, 0], pool[other + 1, 1]
        free -= 1
    return chosen


@kernel
def _note_pool(trace: Trace, pool: Ints, free: int, row: int, size: int) -> None:
    for other in range(free):
        note(trace, pool[other, 1], pool[other, 0], abs(pool[other, 0] - size), 1, True)
        if other == row:
            take_noted(trace)


@kernel
def lay_out(by_object: Ints, objects: Ints, size: Ints, alignment: Ints) -> Ints:
    """Offsets in bytes that put the objects one behind another, each buffer at the first multiple of its
    alignment in its object. `by_object` has the buffers sorted by object."""
    offsets = np.empty(len(size), dtype=np.int64)
    base, top = 0, 0
    for row in range(len(by_object)):
        buffer = by_object[row]
        if row > 0 and objects[buffer] != objects[by_object[row - 1]]:
            base = top
        offsets[buffer] = base + -base % alignment[buffer]
        top = max(top, offsets[buffer] + size[buffer])
    return offsets
