"""Which rectangles can be seen in a window of time × bytes, painted on a grid of cells."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints, Shorts

RANK_BITS = 29
NUMBER = (1 << RANK_BITS) - 1
"""A cell holds the number of a rectangle in these bits and above them its rank: 0 for what has room, 1 for
what is thin and faded, 2 for what is thin. The largest is who is painted last, whatever their order."""
FARTHEST = 2.0**40
"""Farther outside a window no edge need be known."""


@kernel
def inside(
    start: Ints, end: Ints, offset: Ints, size: Ints, x0: float, x1: float, y0: float, y1: float, most: int
) -> Shorts:
    """The rectangles that reach into the steps [x0, x1) and the bytes [y0, y1), in their order; `most` + 1 of
    them where there are more than `most`."""
    rects = np.empty(min(most + 1, len(start)), dtype=np.int32)
    count = 0
    for rect in range(len(start)):
        if end[rect] <= x0 or start[rect] >= x1 or offset[rect] >= y1 or offset[rect] + size[rect] <= y0:
            continue
        rects[count] = rect
        count += 1
        if count > most:
            break
    return rects[:count]


@kernel(small=0)
def paint_cells(
    start: Ints,
    end: Ints,
    offset: Ints,
    size: Ints,
    faded: Flags,
    x0: float,
    x1: float,
    y0: float,
    y1: float,
    width: int,
    height: int,
    border: int,
    first: int,
    last: int,
) -> Shorts:
    """Paint the rectangles numbered from `first` up to `last`, fewer than 2^29, on a grid of cells.

    The window [x0, x1) × [y0, y1) has `width` × `height` cells. The rule is that of the chart's rasteriser:
    edges round to the nearest cell; what is thinner than a cell takes one and comes after all others, faded
    ones (`faded` may be empty) first; where there is room, `border` cells at the right and the top keep the
    colour of what is below. Each cell of the result (width, height, 2) has who is under the pointer and whose
    colour is seen, −1 for nobody. Of several such grids the maximum is the picture of all.
    O(n + cells painted).
    """
    grid = np.full((width, height, 2), -1, dtype=np.int32)
    kx, ky = width / (x1 - x0), height / (y1 - y0)
    for rect in range(first, last):
        low, high = offset[rect], offset[rect] + size[rect]
        if end[rect] <= x0 or start[rect] >= x1 or low >= y1 or high <= y0:
            continue
        left = max(0, _nearest((start[rect] - x0) * kx))
        right = min(width, _nearest((end[rect] - x0) * kx))
        top = max(0, height - _nearest((high - y0) * ky))
        bottom = min(height, height - _nearest((low - y0) * ky))
        rank = 0
        if right <= left or bottom <= top:
            rank = 1 if len(faded) > 0 and faded[rect] else 2
            if right <= left:
                left = min(left, width - 1)
                right = left + 1
            if bottom <= top:
                bottom = max(1, bottom)
                top = bottom - 1
        _paint(grid, rect, rank, left, top, right, bottom, border)
    return grid


@kernel
def _nearest(value: float) -> int:
    return int(np.floor(min(max(value, -FARTHEST), FARTHEST) + 0.5))


@kernel
def _paint(
    grid: Shorts, rect: int, rank: int, left: int, top: int, right: int, bottom: int, border: int
) -> None:
    inner_right = right - border if right - left >= 4 * border else right
    inner_top = top + border if bottom - top >= 3 * border else top
    mark = np.int32(rank << RANK_BITS | rect)
    for column in range(left, right):
        for row in range(top, inner_top):
            grid[column, row, 0] = max(grid[column, row, 0], mark)
        if column < inner_right:
            for row in range(inner_top, bottom):
                grid[column, row, 0] = max(grid[column, row, 0], mark)
                grid[column, row, 1] = max(grid[column, row, 1], mark)
        else:
            for row in range(inner_top, bottom):
                grid[column, row, 0] = max(grid[column, row, 0], mark)


@kernel
def owners_of_cells(grid: Shorts, count: int) -> Shorts:
    """The rectangles, of `count`, that own a cell of `grid` for the pointer or for the eye, in their order.
    To paint only these gives the same picture, cell by cell."""
    is_there = np.zeros(count, dtype=np.bool_)
    for cell in grid.flat:
        if cell >= 0:
            is_there[cell & NUMBER] = True
    return np.flatnonzero(is_there).astype(np.int32)
