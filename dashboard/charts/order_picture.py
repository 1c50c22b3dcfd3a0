"""The ops of a small graph as boxes, level by level, with what has run, what is ready, and a cut through
them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from memplan_engine.plotting.svg_figure import escape
from memplan_engine.rewrites.order.order_problem import OrderProblem
from memplan_engine.units import format_bytes

WIDE, HIGH, ACROSS, BETWEEN, MARGIN = 96, 40, 44, 18, 10
INK = ("#31333f", "#fafafa")
DONE, READY, CUT = ("#3b6fa8", "#8ab4e0"), ("#1a7f37", "#5fc27e"), ("#b34700", "#ff9f5a")
GREY = ("#6b6b6b", "#a8a8a8")
LETTER = 0.62
"""How wide a letter is for its height."""
FONT = 13


@dataclass(frozen=True, slots=True)
class Marked:
    """Units by number: those that have run, those that are `ready`, those in a set that is drawn
    (`inside`), the one that it is about, and the storages that cross its border."""

    done: Collection[int] = ()
    ready: Collection[int] = ()
    inside: Collection[int] = ()
    unit: int = -1
    crossing: Collection[int] = ()


def svg(problem: OrderProblem, marked: Marked, dark: bool) -> str:
    """A box for each unit with its name and the bytes that it makes; an arrow from each to who uses them."""
    places = _places(problem)
    columns = max(x for x, _ in places) + 1
    rows = max(y for _, y in places) + 1
    width = columns * WIDE + (columns - 1) * ACROSS + 2 * MARGIN
    height = rows * HIGH + (rows - 1) * BETWEEN + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="{FONT}">'
    ]
    corners = [(MARGIN + x * (WIDE + ACROSS), MARGIN + y * (HIGH + BETWEEN)) for x, y in places]
    lines += _arrows(problem, marked, corners, dark)
    for unit, (x, y) in enumerate(corners):
        lines += _box(problem, marked, unit, x, y, dark)
    return "".join([*lines, "</svg>"])


def sentence(problem: OrderProblem, marked: Marked) -> str:
    """The same in words."""
    names = names_of(problem)
    sizes = [format_bytes(nbytes) for nbytes in problem.arrays.out.tolist()]
    parts = [
        f"{len(names)} ops: {', '.join(f'{name} {size}' for name, size in zip(names, sizes, strict=True))}"
    ]
    for told, units in (
        ("have run", marked.done),
        ("are ready", marked.ready),
        ("in the set", marked.inside),
    ):
        if units:
            parts.append(f"{told}: {', '.join(names[unit] for unit in sorted(units))}")
    if marked.crossing:
        parts.append(f"crossing: {', '.join(problem.storages[each] for each in sorted(marked.crossing))}")
    return "; ".join(parts)


def names_of(problem: OrderProblem) -> list[str]:
    """What each unit is called."""
    return [problem.graph.ops[op].name for op in problem.main]


def _places(problem: OrderProblem) -> list[tuple[int, int]]:
    """Column and row of each unit: as far right as the longest way to it is long, the rows in order of
    units."""
    o, level = problem.arrays, [0] * len(problem.units)
    for unit in range(len(problem.units)):
        before = o.before[o.before_of[unit] : o.before_of[unit + 1]].tolist()
        level[unit] = max((level[other] + 1 for other in before), default=0)
    row: dict[int, int] = {}
    taken: set[tuple[int, int]] = set()
    for unit in range(len(problem.units)):
        before = o.before[o.before_of[unit] : o.before_of[unit + 1]].tolist()
        # Beside the first that it waits for, where there is room.
        y = min((row[other] for other in before), default=0)
        while (level[unit], y) in taken:
            y += 1
        row[unit] = y
        taken.add((level[unit], y))
    return [(level[unit], row[unit]) for unit in range(len(problem.units))]


def _arrows(problem: OrderProblem, marked: Marked, corners: list[tuple[int, int]], dark: bool) -> list[str]:
    o, lines = problem.arrays, []
    for storage in range(len(o.size)):
        maker = int(o.maker[storage])
        for user in o.users[o.users_of[storage] : o.users_of[storage + 1]].tolist():
            crosses = storage in marked.crossing and user not in marked.inside
            color, thick = (CUT[dark], 3.5) if crosses else (GREY[dark], 1.3)
            (x, y), (u, v) = corners[maker], corners[user]
            begin, end = (x + WIDE, y + HIGH / 2), (u, v + HIGH / 2)
            bend = (begin[0] + end[0]) / 2
            lines.append(
                f'<path d="M{begin[0]} {begin[1]}C{bend} {begin[1]} {bend} {end[1]} {end[0] - 4} {end[1]}" '
                f'fill="none" stroke="{color}" stroke-width="{thick}"/>'
                f'<path d="M{end[0]} {end[1]}l-7 -4v8z" fill="{color}"/>'
            )
    return lines


def _box(problem: OrderProblem, marked: Marked, unit: int, x: int, y: int, dark: bool) -> list[str]:
    ink, fill, stroke, dash = INK[dark], "none", GREY[dark], ""
    if unit in marked.done:
        fill, stroke = DONE[dark], DONE[dark]
    elif unit in marked.ready:
        stroke, dash = READY[dark], ' stroke-dasharray="5 3"'
    if unit in marked.inside or unit == marked.unit:
        stroke = CUT[dark]
        fill = CUT[dark] if unit in marked.inside else "none"
    weight = 2.5 if unit == marked.unit or unit in marked.ready else 1.5
    name, nbytes = names_of(problem)[unit], format_bytes(int(problem.arrays.out[unit]))
    letters = min(FONT, (WIDE - 12) / (LETTER * max(len(name), len(nbytes), 1)))
    middle = x + WIDE / 2
    return [
        f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="5" fill="{fill}" fill-opacity="0.28" '
        f'stroke="{stroke}" stroke-width="{weight}"{dash}/>',
        f'<text x="{middle}" y="{y + 16}" text-anchor="middle" font-weight="bold" font-size="{letters:.1f}" '
        f'fill="{ink}">{escape(name)}</text>',
        f'<text x="{middle}" y="{y + 32}" text-anchor="middle" font-size="{letters:.1f}" '
        f'fill="{ink}">{escape(nbytes)}</text>',
    ]
