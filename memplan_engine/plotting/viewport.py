"""What a window of a plan shows: all rectangles in it, or those that a picture of it needs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels.plotting.window import inside, owners_of_cells, paint_cells
from memplan_engine.problem import Ints
from memplan_engine.system import count_cores

Rows = NDArray[np.int32]
MOST_VECTORS = 200_000
"""Up to this many rectangles are given whole; of more only those that own a cell of the picture."""
MARGINS = (4.0, 1.5, 1.0)
"""How much larger than what is asked for a window may be where that costs nothing: the largest that fits."""
MOST_CELLS = 2_000_000
"""A finer grid is made coarser."""
MOST_THREADS = 4
LEAST_SHARE = 100_000
"""Fewer rectangles are not worth a thread."""


@dataclass(frozen=True, slots=True)
class Window:
    """The steps `[x0, x1)` and the bytes `[y0, y1)`; any numbers with x0 < x1 and y0 < y1."""

    x0: float
    x1: float
    y0: float
    y1: float

    def grown(self, factor: float) -> Window:
        """As many times as wide and as high, about the same middle."""
        x, y = (self.x1 - self.x0) * (factor - 1) / 2, (self.y1 - self.y0) * (factor - 1) / 2
        return Window(self.x0 - x, self.x1 + x, self.y0 - y, self.y1 + y)


@dataclass(frozen=True, slots=True, eq=False)
class Rectangles:
    """Columns of n rectangles: steps `[start, end)` and `size` bytes from `offset` (int64, shape (n,)).

    `faded` (bool, n, or None) are painted below the others where they are thinner than a cell.
    """

    start: Ints
    end: Ints
    offset: Ints
    size: Ints
    faded: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What is to be sent of a window: `rows` (int32, ascending) of the columns.

    `is_whole`: these are all that reach into `window`. Otherwise they are those that own a cell of the
    picture of `window` on `cells` (width, height): on that grid they give the picture that all would give,
    cell by cell, unless it had more than MOST_CELLS and was made coarser.
    """

    rows: Rows
    window: Window
    cells: tuple[int, int]
    is_whole: bool


def view_window(
    rectangles: Rectangles,
    window: Window,
    cells: tuple[int, int],
    border: int = 1,
    most: int = MOST_VECTORS,
) -> View:
    """Look at `window`: all rectangles where there are at most `most` (then also those around it, as far as
    they fit), otherwise the raster of it on `cells` (width, height), `border` cells between neighbours.

    O(n + cells painted): no index over the plan, one pass a try.
    """
    columns = (rectangles.start, rectangles.end, rectangles.offset, rectangles.size)
    for margin in MARGINS:
        wide = window.grown(margin)
        rows = inside(*columns, wide.x0, wide.x1, wide.y0, wide.y1, most)
        if len(rows) <= most:
            return View(rows, wide, cells, True)
    grid = _painted(rectangles, window, _affordable(cells), border)
    return View(owners_of_cells(grid, len(rectangles.start)), window, cells, False)


def _painted(rectangles: Rectangles, window: Window, cells: tuple[int, int], border: int) -> Rows:
    """Who owns each cell; a share of the rectangles a thread, since each shares nothing but its result."""
    columns = (rectangles.start, rectangles.end, rectangles.offset, rectangles.size)
    faded = np.zeros(0, np.bool_) if rectangles.faded is None else rectangles.faded
    count = len(rectangles.start)
    threads = max(1, min(MOST_THREADS, count_cores(), count // LEAST_SHARE))

    def paint(share: int) -> Rows:
        first, last = (count * each // threads for each in (share, share + 1))
        sides = (window.x0, window.x1, window.y0, window.y1)
        return paint_cells(*columns, faded, *sides, *cells, border, first, last)

    with ThreadPoolExecutor(threads) as pool:
        grid, *others = pool.map(paint, range(threads))
    for other in others:
        np.maximum(grid, other, out=grid)
    return grid


def _affordable(cells: tuple[int, int]) -> tuple[int, int]:
    """`cells` in the same proportion, at most MOST_CELLS of them."""
    width, height = max(1, cells[0]), max(1, cells[1])
    shrink = min(1.0, (MOST_CELLS / (width * height)) ** 0.5)
    return max(1, int(width * shrink)), max(1, int(height * shrink))
