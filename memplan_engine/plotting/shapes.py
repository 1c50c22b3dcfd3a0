"""What a figure is made of, before anybody draws it: words, lines, boxes and areas at their pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TITLE, WORDS = 14.0, 11.0
"""Sizes of letters, pixels."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A part of the figure, pixels; `top` is above `bottom`."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """Pixels."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """Pixels."""
        return self.bottom - self.top


@dataclass(frozen=True, slots=True)
class Text:
    """Words whose middle line is at `y`; `anchor` says which end of them is at `x`."""

    x: float
    y: float
    words: str
    colour: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = WORDS
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line; `dash` has the lengths of strokes and blanks, pixels."""

    x0: float
    y0: float
    x1: float
    y1: float
    colour: str
    width: float = 1.0
    dash: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle, hatched in a second colour where there is one."""

    frame: Frame
    colour: str
    hatch: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """What lies below an outline: `points` (k × 2, pixels), closed."""

    points: Floats
    colour: str
    hatch: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """A line through `points` (k × 2, pixels), each straight above, below or beside the one before; `dash` as
    that of a `Line`."""

    points: Floats
    colour: str
    width: float = 1.5
    dash: tuple[float, ...] = ()


Shape = Text | Line | Box | Area | Path
