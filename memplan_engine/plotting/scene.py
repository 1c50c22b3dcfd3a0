"""A plan as a scene: rectangles, lines and words at their places, for whoever draws them (SVG, PNG)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.analysis.claims import arena_name, over_bound, peak_name
from memplan_engine.plan import Plan
from memplan_engine.plotting.axis_ticks import byte_ticks, step_ticks
from memplan_engine.plotting.bands import BAND_ROW, BAR, NARROWEST, Band, bands_of, rows_of
from memplan_engine.plotting.figure_style import FigureStyle, ink_on, shorten, text_width
from memplan_engine.plotting.shapes import TITLE, WORDS, Area, Box, Floats, Frame, Line, Path, Shape, Text
from memplan_engine.plotting.strip_lines import StripLine, strip_lines, top_of_strip
from memplan_engine.problem import Ints, cut
from memplan_engine.profile import Profile, make_profile
from memplan_engine.units import format_bytes

MARGIN, KEY_ROW, LEGEND_ROW = 12.0, 24.0, 18.0
HEADROOM = 1.03
"""The memory axis goes a little beyond the arena, so that its line is seen."""
LOW = 260
"""A figure of less height has a title only: pixels."""
LEGEND_SHARE = 0.25
"""Of the height, at most, for the key."""
MOST_POINTS = 4_000
"""Corners of the outline of the profile: more than a figure has pixels."""
LABEL_SIZE = 10.0
LEAST_WIDTH, LEAST_HEIGHT = 34.0, 13.0
MOST_LABELS = 400
LABEL_INSET = 4.0
LEAST_LETTERS = 6
"""Fewer letters of a longer name say nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Rects:
    """The rectangles, pixels: float64 arrays of one entry a piece, as its buffer and its colour are.

    `colour` (uint8) indexes `palette`; `names` are those of the buffers, which `owner` indexes.
    """

    left: Floats
    top: Floats
    right: Floats
    bottom: Floats
    colour: NDArray[np.uint8]
    palette: tuple[str, ...]
    owner: Ints
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """All that is to be drawn, in this order: `background`, `behind`, `rects` inside of `plot`, `before`."""

    width: int
    height: int
    background: str
    plot: Frame
    behind: tuple[Shape, ...]
    rects: Rects
    before: tuple[Shape, ...]
    title: str


def make_scene(plan: Plan, style: FigureStyle) -> Scene:
    """Lay `plan` out: title, rectangles over time and memory, profile below, and the key."""
    problem, colours = plan.problem, style.colours
    colouring, palette = style.colouring(problem)
    profile = make_profile(problem, plan.offsets)
    title = problem.name if style.title is None else style.title
    keys = _keys(plan, profile, style)
    entries = [(label, palette[colour]) for label, colour in colouring.legend]
    rows = _legend_rows(entries, keys, style)
    lines = strip_lines(plan, profile, MOST_POINTS)
    most = float(top_of_strip(plan, profile, lines))
    bands = bands_of(problem) if style.height >= LOW else ()
    heading_height = (_heading_height(style) if title else 0.0) + BAND_ROW * rows_of(bands)
    plot, strip, key_y = _frames(plan, most, style, len(rows), heading_height)
    scale = Scale(plot, max(1, problem.steps), max(1.0, plan.arena_bytes * HEADROOM))
    deep = Scale(strip, scale.steps, most)
    heading = _heading(plan, style, title) if title else []
    behind = [*_grid(plan, scale, style), *_profile(profile, lines, deep, style)]
    before = [
        *heading,
        *_bands(bands, scale, deep, style),
        *_levels(plan, profile, scale, deep, style),
        *_axes(plan, scale, deep, style),
        *_strip_key(lines, strip, plot, style),
        *_legend(rows, key_y, style),
    ]
    rects = _rects(plan, scale, colouring.index, palette)
    shown = title or problem.name
    return Scene(
        style.width, style.height, colours.background, plot, tuple(behind), rects, tuple(before), shown
    )


@dataclass(frozen=True, slots=True)
class Scale:
    """Steps and bytes → pixels of `frame`; its bottom left corner is step 0, byte 0."""

    frame: Frame
    steps: int
    top: float

    def x(self, step: float) -> float:
        """The pixel at which `step` begins."""
        return self.frame.left + self.frame.width * step / self.steps

    def y(self, nbytes: float) -> float:
        """The pixel of the byte `nbytes`."""
        return self.frame.bottom - self.frame.height * nbytes / self.top


def _frames(
    plan: Plan, deep: float, style: FigureStyle, legend_rows: int, heading_height: float
) -> tuple[Frame, Frame, float]:
    """Plot, strip, which is `deep` bytes high, and where the legend begins."""
    labels = [label for top in (plan.arena_bytes, int(deep)) for _, label in byte_ticks(top, 5)]
    left = MARGIN + max((text_width(label, WORDS) for label in labels), default=0.0) + 8
    right = style.width - MARGIN
    top = MARGIN + heading_height
    legend_top = style.height - MARGIN - legend_rows * LEGEND_ROW
    strip_bottom = legend_top - KEY_ROW - 4
    room = strip_bottom - top - KEY_ROW
    strip_height = min(96.0, max(24.0, room * 0.2))
    strip_top = strip_bottom - strip_height
    return (
        Frame(left, top, right, max(top + 1, strip_top - KEY_ROW)),
        Frame(left, strip_top, right, strip_bottom),
        legend_top,
    )


def _rects(plan: Plan, scale: Scale, index: NDArray[np.uint8], palette: tuple[str, ...]) -> Rects:
    pieces = cut(plan.problem)
    low = (plan.offsets[pieces.owner] + pieces.low).astype(np.float64)
    kx, ky = scale.frame.width / scale.steps, scale.frame.height / scale.top
    return Rects(
        scale.frame.left + pieces.start.astype(np.float64) * kx,
        scale.frame.bottom - (low + (pieces.high - pieces.low)) * ky,
        scale.frame.left + pieces.end.astype(np.float64) * kx,
        scale.frame.bottom - low * ky,
        index[pieces.owner],
        palette,
        pieces.owner,
        buffer_names(plan.problem),
    )


def _heading(plan: Plan, style: FigureStyle, title: str) -> list[Shape]:
    facts = (
        f"{plan.strategy} · arena {format_bytes(plan.arena_bytes)} · {over_bound(plan)} · "
        f"{len(plan.problem):,} buffers, {plan.problem.steps:,} steps"
    )
    room, colours = style.width - 2 * MARGIN, style.colours
    words = shorten(title, room, TITLE * 1.06)
    heading: list[Shape] = [Text(MARGIN, MARGIN + 8, words, colours.text, size=TITLE, bold=True)]
    if style.height >= LOW:
        heading.append(Text(MARGIN, MARGIN + 28, shorten(facts, room, WORDS), colours.muted))
    return heading


def _heading_height(style: FigureStyle) -> float:
    return 44.0 if style.height >= LOW else 24.0


def _grid(plan: Plan, scale: Scale, style: FigureStyle) -> list[Shape]:
    frame = scale.frame
    return [
        Line(frame.left, scale.y(value), frame.right, scale.y(value), style.colours.grid)
        for value, _ in byte_ticks(plan.arena_bytes, _memory_ticks(frame))
    ]


def _memory_ticks(frame: Frame) -> int:
    return max(2, int(frame.height / 44))


def _axes(plan: Plan, scale: Scale, deep: Scale, style: FigureStyle) -> list[Shape]:
    plot, strip, colours = scale.frame, deep.frame, style.colours
    shapes: list[Shape] = [
        Line(frame.left, frame.bottom, frame.right, frame.bottom, colours.axis) for frame in (plot, strip)
    ]
    for value, label in byte_ticks(plan.arena_bytes, _memory_ticks(plot)):
        shapes.append(Text(plot.left - 8, scale.y(value), label, colours.muted, "end"))
    for value, label in byte_ticks(int(deep.top), max(1, int(strip.height / 34))):
        if value:
            shapes.append(Text(strip.left - 8, deep.y(value), label, colours.muted, "end"))
    y = strip.bottom + 14
    shapes.append(Text(strip.right, y, "steps", colours.muted, "end"))
    room = strip.right - text_width("steps", WORDS) - 6
    for value, label in step_ticks(plan.problem.steps, int(plot.width / 72)):
        half = text_width(label, WORDS) / 2
        if deep.x(value) + half <= room:
            shapes.append(Line(deep.x(value), strip.bottom, deep.x(value), strip.bottom + 4, colours.axis))
            shapes.append(Text(deep.x(value), y, label, colours.muted, "middle"))
    return shapes


def _bands(bands: Sequence[Band], scale: Scale, deep: Scale, style: FigureStyle) -> list[Shape]:
    """Bars with their names above the plot, and lines at their ends through plot and strip."""
    plot, strip = scale.frame, deep.frame
    highest = plot.top - BAND_ROW * rows_of(bands)
    shapes: list[Shape] = []
    edges: dict[float, float] = {}
    for band in bands:
        left, right, top = scale.x(band.start), scale.x(band.end), highest + BAND_ROW * band.row
        bar = Frame(left, top, max(right - 1, left + 0.5), top + BAR)
        shapes.append(Box(bar, style.of_theme(band.colours)))
        room = right - left - 4
        words = next((each for each in (band.label, band.short) if text_width(each, WORDS) <= room), "")
        if words:
            shapes.append(Text(left + 2, top + 10, words, style.colours.text))
        if right - left >= NARROWEST:
            edges |= {x: min(top, edges.get(x, top)) for x in (left, right)}
    for x, top in edges.items():
        if plot.left + 1 < x < plot.right - 1:
            for begin, end in ((top, plot.bottom), (strip.top, strip.bottom)):
                shapes.append(Line(x, begin, x, end, style.colours.axis, 0.75))
    return shapes


def _levels(plan: Plan, profile: Profile, scale: Scale, deep: Scale, style: FigureStyle) -> list[Shape]:
    """Arena, lower bound and peak step, through plot and strip."""
    shapes: list[Shape] = []
    for panel in (deep, scale):
        left, right = panel.frame.left, panel.frame.right
        levels: list[tuple[int, str, tuple[float, ...]]] = [(plan.arena_bytes, style.colours.text, ())]
        if not plan.optimal:
            levels.append((plan.bound.nbytes, style.colours.bound, (6, 4)))
        for value, colour, dash in levels:
            shapes.append(Line(left, panel.y(value), right, panel.y(value), colour, 1.5, dash))
        x = panel.x(profile.peak_step + 0.5)
        shapes.append(Line(x, panel.frame.top, x, panel.frame.bottom, style.colours.peak, 1.0, (4, 3)))
    return shapes


def _profile(profile: Profile, lines: Sequence[StripLine], deep: Scale, style: FigureStyle) -> list[Shape]:
    colours = style.colours
    edges, live, high = coarse(profile, MOST_POINTS)
    shapes: list[Shape] = [
        Area(_outline(edges, high, deep), colours.holes, colours.hatch),
        Area(_outline(edges, live, deep), colours.live),
    ]
    for line in lines:
        corners = _outline(np.append(line.start, edges[-1]), line.nbytes, deep)[1:-1]
        shapes.append(Path(corners, style.of_theme(line.colours), dash=line.dash))
    return shapes


def coarse(profile: Profile, most: int) -> tuple[Floats, Ints, Ints]:
    """The profile in `most` stretches of time or fewer: their edges (steps), and the largest live and
    high-water bytes in each. A profile of no more sections is given as it is."""
    bounds = profile.sections.bounds
    if len(profile.live) <= most:
        return bounds.astype(np.float64), profile.live, profile.high_water
    edges = np.linspace(bounds[0], bounds[-1], most + 1)
    first = np.searchsorted(bounds, edges[:-1], side="right") - 1
    last = np.maximum(np.searchsorted(bounds, edges[1:], side="left"), first + 1)
    pairs = np.column_stack([first, last]).ravel()
    live, high = (
        np.maximum.reduceat(np.append(values, 0), pairs)[::2] for values in (profile.live, profile.high_water)
    )
    return edges, live, high


def _outline(edges: Floats, values: Ints, deep: Scale) -> Floats:
    """The corners of a step function from the bottom left to the bottom right."""
    frame = deep.frame
    x = frame.left + frame.width * edges / deep.steps
    y = frame.bottom - frame.height * values / deep.top
    corners = np.column_stack([np.repeat(x, 2)[1:-1], np.repeat(y, 2)])
    return np.vstack([[x[0], frame.bottom], corners, [x[-1], frame.bottom]])


def _strip_key(lines: Sequence[StripLine], strip: Frame, plot: Frame, style: FigureStyle) -> list[Shape]:
    """ "live", "fragmentation" and the names of the lines, between plot and strip."""
    colours, x, y = style.colours, strip.left, (plot.bottom + strip.top) / 2
    shapes: list[Shape] = []
    for words, colour, hatch in (("live", colours.live, ""), ("fragmentation", colours.holes, colours.hatch)):
        shapes.append(Box(Frame(x, y - 5, x + 10, y + 5), colour, hatch))
        shapes.append(Text(x + 14, y, words, colours.muted))
        x += 14 + text_width(words, WORDS) + 12
    for line in lines:
        shapes.append(Line(x, y, x + 14, y, style.of_theme(line.colours), 1.5, line.dash))
        shapes.append(Text(x + 18, y, line.label, colours.muted))
        x += 18 + text_width(line.label, WORDS) + 12
    return shapes


Key = tuple[str, str, float, tuple[float, ...]]
"""A line of the key: words, colour, width and dash."""


def _keys(plan: Plan, profile: Profile, style: FigureStyle) -> list[Key]:
    colours = style.colours
    name, *rest = arena_name(plan).split(" = ")
    arena = " = ".join((f"{name} {format_bytes(plan.arena_bytes)}", *rest))
    keys: list[Key] = [(arena, colours.text, 1.5, ())]
    if not plan.optimal:
        words = f"lower bound {format_bytes(plan.bound.nbytes)} ({plan.bound.kind.words})"
        keys.append((words, colours.bound, 1.5, (6, 4)))
    return [*keys, (f"{peak_name(plan.problem)} step {profile.peak_step:,}", colours.peak, 1.0, (4, 3))]


Entry = tuple[str, str | Key, float]
"""Words, what stands before them (a colour or a line), and where (x) or how wide that is."""


def _legend_rows(
    entries: Sequence[tuple[str, str]], keys: Sequence[Key], style: FigureStyle
) -> list[list[Entry]]:
    """The lines and the colours of the key, in rows; in a small figure only the first colours."""
    most = max(2, int(style.height * LEGEND_SHARE / LEGEND_ROW))
    lines: list[Entry] = [(key[0], key, 26.0) for key in keys]
    # The narrowest entry is its box and what lies between two.
    for count in range(min(len(entries), int(most * style.width / 29)), -1, -1):
        shown: list[Entry] = [(label, colour, 15.0) for label, colour in entries[:count]]
        if count < len(entries):
            shown.append((f"and {len(entries) - count} more", style.colours.background, 0.0))
        rows = [*_broken(lines, style), *_broken(shown, style)]
        if len(rows) <= most:
            break
    return rows


def _broken(entries: Sequence[Entry], style: FigureStyle) -> list[list[Entry]]:
    """`entries` in rows that fit, each with its x."""
    rows: list[list[Entry]] = []
    room = style.width - 2 * MARGIN
    x = room + 1.0
    for label, mark, indent in entries:
        words = shorten(label, room - indent, WORDS)
        width = indent + text_width(words, WORDS)
        if x + width > room:
            rows.append([])
            x = 0.0
        rows[-1].append((words, mark, MARGIN + x))
        x += width + 14
    return rows


def _legend(rows: Sequence[Sequence[Entry]], top: float, style: FigureStyle) -> list[Shape]:
    shapes: list[Shape] = []
    for number, row in enumerate(rows):
        y = top + (number + 0.5) * LEGEND_ROW
        for words, mark, x in row:
            if mark == style.colours.background:
                shapes.append(Text(x, y, words, style.colours.muted))
            elif isinstance(mark, str):
                shapes.append(Box(Frame(x, y - 5, x + 10, y + 5), mark))
                shapes.append(Text(x + 15, y, words, style.colours.text))
            else:
                shapes.append(Line(x, y, x + 20, y, mark[1], mark[2], mark[3]))
                shapes.append(Text(x + 26, y, words, style.colours.text))
    return shapes


def rect_labels(rects: Rects) -> list[Text]:
    """The names of the MOST_LABELS largest rectangles with room, cut to fit."""
    width, height = rects.right - rects.left, rects.bottom - rects.top
    roomy = np.flatnonzero((width >= LEAST_WIDTH) & (height >= LEAST_HEIGHT))
    largest = roomy[np.argsort(-(width * height)[roomy], kind="stable")[:MOST_LABELS]]
    labels = []
    for rect in np.sort(largest).tolist():
        name = rects.names[rects.owner[rect]]
        words = shorten(name, width[rect] - 2 * LABEL_INSET, LABEL_SIZE)
        if words == name or len(words) > LEAST_LETTERS:
            middle = (rects.top[rect] + rects.bottom[rect]) / 2
            ink = ink_on(rects.palette[rects.colour[rect]])
            labels.append(Text(rects.left[rect] + LABEL_INSET, middle, words, ink, size=LABEL_SIZE))
    return labels
