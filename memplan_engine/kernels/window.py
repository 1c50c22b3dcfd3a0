"""Which rectangles can be seen in a window of time × bytes, painted on a grid of cells."""

from __future__ import annotations

import numpy as np
from numba import njit

from memplan_engine.kernels.types import Flags, Ints, Shorts


@njit(cache=True, nogil=True)
def inside(
    start: Ints, end: Ints, offset: Ints, size: Ints, x0: float, x1: float, y0: float, y1: float, most: int
) -> Shorts:
    """The rectangles that reach into the steps [x0, x1) and the bytes [y0, y1), in their order; `most` + 1 of
    them where there are more than `most`."""
    found = np.empty(min(most + 1, len(start)), dtype=np.int32)
    count = 0
    for rect in range(len(start)):
        if end[rect] <= x0 or start[rect] >= x1 or offset[rect] >= y1 or offset[rect] + size[rect] <= y0:
            continue
        found[count] = rect
        count += 1
        if count > most:
            break
    return found[:count]


@njit(cache=True, nogil=True)
def owners_of_cells(
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
) -> tuple[Shorts, int]:
    """The rectangles that own a cell when all of them are painted, in their order, and how many were painted.

    The window [x0, x1) × [y0, y1) has `width` × `height` cells. The rule is that of the chart's rasteriser:
    edges round to the nearest cell; what is thinner than a cell takes one and comes after all others, faded
    ones (`faded` may be empty) first; where there is room, `border` cells at the right and the top keep the
    colour of what is below. Whoever owns a cell for the pointer or for the eye counts, so that painting only
    those that are returned gives the same picture, cell by cell. O(n + cells painted).
    """
    pointed = np.full((height, width), -1, dtype=np.int32)
    seen = np.full((height, width), -1, dtype=np.int32)
    thin = np.empty(len(start), dtype=np.int32)
    box = np.empty(4, dtype=np.int64)
    thin_count, painted = 0, 0
    for rect in range(len(start)):
        low, high = offset[rect], offset[rect] + size[rect]
        if end[rect] <= x0 or start[rect] >= x1 or low >= y1 or high <= y0:
            continue
        painted += 1
        if _place(box, start[rect], end[rect], low, high, x0, x1, y0, y1, width, height):
            _paint(pointed, seen, rect, box, border)
        else:
            thin[thin_count] = rect
            thin_count += 1
    for bright in range(2):
        for rect in thin[:thin_count]:
            if (len(faded) > 0 and faded[rect]) == (bright == 1):
                continue
            low, high = offset[rect], offset[rect] + size[rect]
            _place(box, start[rect], end[rect], low, high, x0, x1, y0, y1, width, height)
            _paint(pointed, seen, rect, box, border)
    return _members(pointed, seen, len(start)), painted


@njit(cache=True, nogil=True)
def _place(
    box: Ints,
    start: int,
    end: int,
    low: int,
    high: int,
    x0: float,
    x1: float,
    y0: float,
    y1: float,
    width: int,
    height: int,
) -> bool:
    """Put the cells of a rectangle (left, top, right, bottom) into `box`; False where it is thinner."""
    kx, ky = width / (x1 - x0), height / (y1 - y0)
    left = max(0, _nearest((start - x0) * kx))
    right = min(width, _nearest((end - x0) * kx))
    top = max(0, height - _nearest((high - y0) * ky))
    bottom = min(height, height - _nearest((low - y0) * ky))
    wide = right > left and bottom > top
    if right <= left:
        left = min(left, width - 1)
        right = left + 1
    if bottom <= top:
        bottom = max(1, bottom)
        top = bottom - 1
    box[0], box[1], box[2], box[3] = left, top, right, bottom
    return wide


@njit(cache=True, nogil=True)
def _nearest(value: float) -> int:
    return int(np.floor(value + 0.5))


@njit(cache=True, nogil=True)
def _paint(pointed: Shorts, seen: Shorts, rect: int, box: Ints, border: int) -> None:
    left, top, right, bottom = box
    inner_right = right - border if right - left >= 4 * border else right
    inner_top = top + border if bottom - top >= 3 * border else top
    pointed[top:bottom, left:right] = rect
    seen[inner_top:bottom, left:inner_right] = rect


@njit(cache=True, nogil=True)
def _members(pointed: Shorts, seen: Shorts, count: int) -> Shorts:
    """All numbers below `count` that stand in one of the grids, in ascending order."""
    is_there = np.zeros(count + 1, dtype=np.bool_)
    for grid in (pointed, seen):
        for cell in grid.flat:
            # −1, for no rectangle, is the last entry.
            is_there[cell] = True
    return np.flatnonzero(is_there[:count]).astype(np.int32)
