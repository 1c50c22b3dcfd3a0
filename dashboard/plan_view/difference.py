"""What panels that are compared show besides: patterns, switches in the legend, a strip of differences."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_dashboard.plan_view.panel import Ints

PATTERNS = {"rising": 1, "falling": 2, "dots": 4, "upright": 8, "level": 16}
"""Patterns that can be drawn over a colour; sums of them show several at once."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A switch in the legend: its `color` in the palette, how many buffers it stands for, and if it is on."""

    label: str
    color: int
    count: int
    on: bool


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
