"""A plan over several banks as a scene: a lane for each bank, one below the other, over one time axis."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.plotting.axis_ticks import byte_ticks, step_ticks
from memplan_engine.plotting.figure_style import FigureStyle, shorten, text_width
from memplan_engine.plotting.scene import (
    HEADROOM,
    LEGEND_ROW,
    MARGIN,
    Rects,
    Scale,
    Scene,
    draw_legend,
    legend_rows,
    rects_of,
)
from memplan_engine.plotting.shapes import TITLE, WORDS, Frame, Line, Shape, Text
from memplan_engine.plotting.svg_figure import svg_of
from memplan_engine.system import write_atomically
from memplan_engine.units import count_of, format_bytes

HEADING, CAPTION, STEPS = 28.0, 22.0, 24.0
"""Heights of the title, of the words above each lane, and of the time axis; pixels."""
LEAST_LANE = 24.0


def write_lanes(plan: BankedPlan, path: FilePath | str, style: FigureStyle | None = None) -> None:
    """Write `plan` to `path` as SVG, atomically; raises InputError when that cannot be done."""
    write_atomically(path, lanes_svg(plan, style).encode())


def lanes_svg(plan: BankedPlan, style: FigureStyle | None = None) -> str:
    """`plan` as an SVG document, a lane a bank."""
    style = style or FigureStyle()
    return svg_of(make_lanes(plan, style), style)


def make_lanes(plan: BankedPlan, style: FigureStyle) -> Scene:
    """Lay `plan` out: of each bank the rectangles over time and memory, as high as its capacity, or its arena
    where it has none, and above them what it is called and holds."""
    problem, colours = plan.problem, style.colours
    colouring, palette = style.colouring(problem)
    keys = [("arena", colours.text, 1.5, ()), ("capacity", colours.peak, 1.5, (6.0, 4.0))]
    entries = [(label, palette[colour]) for label, colour in colouring.legend]
    rows = legend_rows(entries, keys, style)
    scales = _scales(plan, style, len(rows))
    title = problem.name if style.title is None else style.title
    behind: list[Shape] = []
    before: list[Shape] = [
        Text(
            MARGIN,
            MARGIN + 8,
            shorten(title, style.width - 2 * MARGIN, TITLE),
            colours.text,
            size=TITLE,
            bold=True,
        )
    ]
    lanes = []
    for bank, scale in enumerate(scales):
        own = plan.rows(bank)
        rects = rects_of(plan.plans[bank], scale, colouring.index[own], palette)
        lanes.append(replace(rects, owner=own[rects.owner]))
        behind += _grid(plan, bank, scale, style)
        before += _words(plan, bank, scale, style)
    before += [
        *_steps(scales[-1], style),
        *draw_legend(rows, style.height - MARGIN - len(rows) * LEGEND_ROW, style),
    ]
    first, last = scales[0].frame, scales[-1].frame
    plot = Frame(first.left, first.top, first.right, last.bottom)
    return Scene(
        style.width,
        style.height,
        colours.background,
        plot,
        tuple(behind),
        _joined(lanes, buffer_names(problem)),
        tuple(before),
        title or problem.name,
    )


def _top(plan: BankedPlan, bank: int) -> int:
    """The bytes that the lane of `bank` is high."""
    capacity, arena = plan.banks.banks[bank].capacity, plan.plans[bank].arena_bytes
    return max(1, arena if capacity is None else max(capacity, arena))


def _scales(plan: BankedPlan, style: FigureStyle, legend: int) -> list[Scale]:
    """The lanes from the top to the bottom, all of one height."""
    count = len(plan.plans)
    labels = [label for bank in range(count) for _, label in byte_ticks(_top(plan, bank), 3)]
    left = MARGIN + max(text_width(label, WORDS) for label in labels) + 8
    top, bottom = MARGIN + HEADING, style.height - MARGIN - legend * LEGEND_ROW - STEPS
    height = max(LEAST_LANE, (bottom - top) / count - CAPTION)
    scales = []
    for bank in range(count):
        begin = top + bank * (height + CAPTION) + CAPTION
        frame = Frame(left, begin, style.width - MARGIN, begin + height)
        scales.append(Scale(frame, max(1, plan.problem.steps), _top(plan, bank) * HEADROOM))
    return scales


def _grid(plan: BankedPlan, bank: int, scale: Scale, style: FigureStyle) -> list[Shape]:
    frame = scale.frame
    return [
        Line(frame.left, scale.y(value), frame.right, scale.y(value), style.colours.grid)
        for value, _ in byte_ticks(_top(plan, bank), max(2, int(frame.height / 44)))
    ]


def _words(plan: BankedPlan, bank: int, scale: Scale, style: FigureStyle) -> list[Shape]:
    """The name of a bank with its figures, its axis, and the lines of its arena and capacity."""
    frame, colours, own = scale.frame, style.colours, plan.banks.banks[bank]
    arena, rows = plan.plans[bank].arena_bytes, plan.rows(bank)
    spilled = int((plan.extra_costs[rows] > 0).sum())
    facts = [
        f"arena {format_bytes(arena)}"
        + ("" if own.capacity is None else f" of {format_bytes(own.capacity)}"),
        count_of(len(rows), "buffer"),
        *([f"{spilled:,} spilled"] if spilled else []),
    ]
    y, name_width = frame.top - CAPTION / 2, text_width(own.name, WORDS * 1.1)
    shapes: list[Shape] = [
        Text(frame.left, y, own.name, colours.text, bold=True),
        Text(frame.left + name_width + 10, y, " · ".join(facts), colours.muted),
        Line(frame.left, frame.bottom, frame.right, frame.bottom, colours.axis),
        Line(frame.left, scale.y(arena), frame.right, scale.y(arena), colours.text, 1.5),
    ]
    if own.capacity is not None:
        level = scale.y(own.capacity)
        shapes.append(Line(frame.left, level, frame.right, level, colours.peak, 1.5, (6.0, 4.0)))
    for value, label in byte_ticks(_top(plan, bank), max(2, int(frame.height / 44))):
        shapes.append(Text(frame.left - 8, scale.y(value), label, colours.muted, "end"))
    return shapes


def _steps(scale: Scale, style: FigureStyle) -> list[Shape]:
    """The time axis, below the last lane."""
    frame, colours = scale.frame, style.colours
    y = frame.bottom + 14
    shapes: list[Shape] = [Text(frame.right, y, "steps", colours.muted, "end")]
    room = frame.right - text_width("steps", WORDS) - 6
    for value, label in step_ticks(scale.steps, int(frame.width / 72)):
        if scale.x(value) + text_width(label, WORDS) / 2 <= room:
            shapes.append(Line(scale.x(value), frame.bottom, scale.x(value), frame.bottom + 4, colours.axis))
            shapes.append(Text(scale.x(value), y, label, colours.muted, "middle"))
    return shapes


def _joined(lanes: list[Rects], names: tuple[str, ...]) -> Rects:
    columns = {
        key: np.concatenate([getattr(lane, key) for lane in lanes])
        for key in ("left", "top", "right", "bottom", "colour", "owner")
    }
    return Rects(**columns, palette=lanes[0].palette, names=names)
