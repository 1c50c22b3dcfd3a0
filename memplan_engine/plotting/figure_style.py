"""How a figure looks: size, resolution, theme, colouring, and how wide text is going to be."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from memplan_engine.errors import InputError
from memplan_engine.plotting.colouring import (
    COLOURINGS,
    Colouring,
    by_kind,
    by_module_role,
    by_size,
    knows_roles,
)
from memplan_engine.problem import Problem

PIXELS_PER_INCH = 96
"""Of the pixels in which figures are laid out: those of CSS and SVG."""
BLACK, WHITE = "#11141a", "#ffffff"
"""The inks of words on rectangles."""
LEAST_SIDE, MOST_SIDE = 200, 20_000
LEAST_DPI, MOST_DPI = 24, 2400
_UNITS = {"px": 1.0, "pt": 96 / 72, "in": 96.0, "cm": 96 / 2.54, "mm": 96 / 25.4}
_LENGTH = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(px|pt|in|cm|mm)?", re.ASCII | re.IGNORECASE)
_NARROW, _WIDE = frozenset("fijlrtI.,:;'|!()[]{}/\\ -\"`"), frozenset("mwMW@%")


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours as #rrggbb."""

    background: str
    text: str
    muted: str
    grid: str
    axis: str
    live: str
    holes: str
    hatch: str
    bound: str
    peak: str


THEMES = {
    "light": Theme(
        *("#ffffff", "#1f2430", "#5c6270", "#e8eaee", "#a4a9b4"),
        *("#3b7ddd", "#f5c9ab", "#e39b69", "#1f66c7", "#b3264e"),
    ),
    "dark": Theme(
        *("#14171d", "#eceef2", "#a9afbb", "#2a2f38", "#636a77"),
        *("#7fb2f5", "#6e4f38", "#a0714c", "#8fc1ff", "#ff9db4"),
    ),
}


@dataclass(frozen=True, slots=True)
class FigureStyle:
    """`width` and `height` in pixels of 1/96 inch; `dpi` device pixels per inch of a PNG; `theme` light or
    dark; `colour_by` a name of `COLOURINGS`, or None for `default_colouring`;
    `title` the graph's name unless given, "" for none.

    Raises
    ------
    InputError: a size, resolution, theme or colouring that there is not.
    """

    width: int = 960
    height: int = 600
    dpi: int = 192
    theme: str = "light"
    colour_by: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        for side, value in (("width", self.width), ("height", self.height)):
            if not LEAST_SIDE <= value <= MOST_SIDE:
                raise InputError("figure", side, f"{value} pixels", f"{LEAST_SIDE} to {MOST_SIDE:,}")
        if not LEAST_DPI <= self.dpi <= MOST_DPI:
            raise InputError("figure", "dpi", str(self.dpi), f"{LEAST_DPI} to {MOST_DPI:,}")
        if self.theme not in THEMES:
            raise InputError("figure", "theme", repr(self.theme), " or ".join(THEMES))
        if self.colour_by is not None and self.colour_by not in COLOURINGS:
            raise InputError("figure", "colouring", repr(self.colour_by), ", ".join(COLOURINGS))

    @property
    def colours(self) -> Theme:
        """The colours of the theme."""
        return THEMES[self.theme]

    def colouring(self, problem: Problem) -> tuple[Colouring, tuple[str, ...]]:
        """The colouring of `problem`, and its palette on the side of the theme."""
        chosen = COLOURINGS[self.colour_by] if self.colour_by else default_colouring(problem)
        colouring = chosen(problem)
        return colouring, tuple(map(self.of_theme, colouring.palette))

    def of_theme(self, colours: tuple[str, str]) -> str:
        """Of a colour on light and one on dark ground that of the theme."""
        return colours[self.theme == "dark"]


def parse_length(text: str, source: str) -> int:
    """ "960", "3.5in", "85 mm" → pixels of 1/96 inch; raises InputError naming `source`."""
    match = _LENGTH.fullmatch(text.strip())
    if not match:
        raise InputError(source, "", repr(text[:40]), "a length in px, pt, in, cm or mm, as 85mm")
    return round(float(match[1]) * _UNITS[(match[2] or "px").lower()])


def knows_kinds(problem: Problem) -> bool:
    """Whether anything is known of the operations that made the buffers."""
    return problem.origin is not None or problem.callers is not None


def default_colouring(problem: Problem) -> Callable[[Problem], Colouring]:
    """Module roles where most of the memory has one, else op kinds where they are known, else sizes."""
    if not knows_kinds(problem):
        return by_size
    return by_module_role if knows_roles(problem) else by_kind


def default_name(problem: Problem) -> str:
    """What the default colouring of `problem` is called."""
    default = default_colouring(problem)
    return next(name for name, colouring in COLOURINGS.items() if colouring is default)


def rgb(colour: str) -> tuple[int, int, int]:
    """ "#4477AA" → (68, 119, 170)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def ink_on(colour: str) -> str:
    """Black or white, whichever has more contrast on `colour` (WCAG 2)."""
    is_light = _lightness(colour) ** 2 >= _lightness(BLACK) * _lightness(WHITE)
    return BLACK if is_light else WHITE


def _lightness(colour: str) -> float:
    """The relative luminance and 0.05: the contrast of two colours is the quotient of theirs."""
    parts = [value / 255 for value in rgb(colour)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05


def text_width(text: str, size: float) -> float:
    """About how many pixels `text` takes in a sans-serif font of `size` pixels, rather too many than too few:
    a figure is laid out before anybody knows in which font it will be drawn."""
    return size * sum(map(_width_of, text))


def shorten(text: str, room: float, size: float) -> str:
    """`text`, or as much of its beginning as `room` pixels hold, with "…"; "" below three letters."""
    if text_width(text, size) <= room:
        return text
    room -= text_width("…", size)
    kept = 0
    for letter in text:
        room -= size * _width_of(letter)
        if room < 0:
            break
        kept += 1
    return f"{text[:kept]}…" if kept >= 3 else ""


def _width_of(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _WIDE:
        return 0.9
    if letter.isascii():
        return 0.7 if letter.isupper() else 0.57
    return 1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.65
