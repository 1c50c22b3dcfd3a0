"""What one panel of the rectangle chart shows: a finished plan as columns.

Panels that are compared show more: patterns, switches in the legend, a strip of differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from memplan_dashboard.plan_view.panes import Panes
from numpy.typing import NDArray

from memplan_engine.analysis.layers import Layer
from memplan_engine.plotting.bands import Band
from memplan_engine.plotting.strip_lines import StripLine

Ints = NDArray[np.int64]
MAX_COLORS = 128


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One plan as columns of n rectangles. Offsets and sizes in bytes, times in steps, lifetimes half-open.

    `start`, `end`, `offset`, `size` are int64 of shape (n,). `color` (uint8, n) indexes the palette given to
    `plan_view`; `dimmed` (bool, n) marks rectangles to be faded, None when there are none. `owner` (int32, n)
    maps a rectangle to its buffer, for buffers drawn as several pieces; None means rectangle i is buffer i.
    `names` is indexed by buffer, `step_labels` by step (None when unknown or too many); `buffers` is how many
    there are, where `owner` counts those of other panels, too.

    `profile_start`, `profile_live`, `profile_high` (int64, k) describe the strip below the chart: section j
    covers the steps from `profile_start[j]` up to `profile_start[j + 1]` (the last one up to `steps`) with
    that many live bytes and that high-water mark.

    `arena_name` and `peak_name` name the lines at `arena` and `peak_step`.
    `before` is an arena (bytes) to compare with, drawn as a line of its own. `lines` lie over the strip.
    `panes` is what stands beside a chart of one panel, None for nothing.
    `layers` are the modules that run, from the outermost cut to the innermost.

    Raises ValueError when the columns of a panel do not belong together.
    """

    title: str
    subtitle: str
    start: Ints
    end: Ints
    offset: Ints
    size: Ints
    color: NDArray[np.uint8]
    names: Sequence[str]
    arena: int
    bound: int
    peak_step: int
    steps: int
    profile_start: Ints
    profile_live: Ints
    profile_high: Ints
    arena_name: str = "arena"
    peak_name: str = "peak"
    capacity: int | None = None
    dimmed: NDArray[np.bool_] | None = None
    owner: NDArray[np.int32] | None = None
    step_labels: Sequence[str] | None = None
    buffers: int | None = None
    bands: tuple[Band, ...] = ()
    before: int | None = None
    lines: tuple[StripLine, ...] = ()
    panes: Panes | None = None
    layers: tuple[tuple[Layer, ...], ...] = ()

    def __post_init__(self) -> None:
        n, k = len(self.start), len(self.profile_start)
        for field in ("end", "offset", "size", "color", "dimmed", "owner"):
            column = getattr(self, field)
            if column is not None and len(column) != n:
                raise ValueError(f"panel {self.title!r}: {field} has {len(column)} rows, start has {n}")
        for field in ("profile_live", "profile_high"):
            if len(getattr(self, field)) != k:
                raise ValueError(f"panel {self.title!r}: {field} has not the {k} rows of profile_start")
        if n and int(self.color.max()) >= MAX_COLORS:
            raise ValueError(f"panel {self.title!r}: color {int(self.color.max())} is past {MAX_COLORS - 1}")
        buffers = n if self.owner is None else int(self.owner.max(initial=-1)) + 1
        if len(self.names) < buffers:
            raise ValueError(f"panel {self.title!r}: {len(self.names)} names for {buffers} buffers")
        if self.step_labels is not None and len(self.step_labels) != self.steps:
            raise ValueError(f"panel {self.title!r}: {len(self.step_labels)} step labels, {self.steps} steps")


PATTERNS = {"rising": 1, "falling": 2, "dots": 4, "upright": 8, "level": 16}
"""Patterns that can be drawn over a colour; sums of them show several at once."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A switch in the legend: its `color` in the palette, how many buffers it stands for, and if it is on."""

    label: str
    color: int
    count: int
    on: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What was searched for: a regular expression, or "" for nothing, and the `text` that was typed for it;
    how many buffers it found, of how many bytes together."""

    pattern: str
    text: str
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Live bytes of two panels on the steps of the second: stretch j covers the steps from `bounds[j]` up to
    `bounds[j + 1]`, in which `head[j]` bytes live and, at the steps of the first that stand for them,
    `base[j]`. `up` and `down` are the palette's colours for more and for fewer.

    Raises ValueError when the columns do not belong together.
    """

    title: str
    bounds: Ints
    base: Ints
    head: Ints
    peak_step: int
    up: int
    down: int

    def __post_init__(self) -> None:
        if not len(self.base) == len(self.head) == max(0, len(self.bounds) - 1):
            sizes = f"{len(self.bounds)} bounds, {len(self.base)} and {len(self.head)} values"
            raise ValueError(f"difference {self.title!r}: {sizes}")
