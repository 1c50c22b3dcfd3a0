"""The memory of a series over its commits as a picture: demand, what packing loses, and the changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from memplan_engine.history.alarms import ChangeState, Watched
from memplan_engine.history.blame import Blame
from memplan_engine.history.history_values import SHORT_HASH, HistoryPoint
from memplan_engine.plotting.axis_ticks import byte_ticks
from memplan_engine.plotting.svg_figure import escape
from memplan_engine.reporters.history.change_words import date_of, short_cause
from memplan_engine.units import format_bytes, format_signed

WIDTH, HEIGHT = 1200, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 150, 40, 50
HEADROOM = 1.12
MOST_DATES, MOST_TICKS = 7, 6
LABEL_WIDTH, LABEL_HEIGHT = 78, 13
STYLES = {
    ChangeState.TO_LOOK_AT: "change alarm",
    ChangeState.WITHIN_LIMIT: "change",
    ChangeState.LOWER: "change lower",
    ChangeState.BESIDE: "change",
    ChangeState.MADE_GOOD: "change acknowledged",
    ChangeState.ACKNOWLEDGED: "change acknowledged",
}
Judged = tuple[Blame, ChangeState]
"""A change with its cause, and what is to be done about it."""


def trend_chart(watched: Watched, judged: Sequence[Judged], name: str) -> str:
    """The picture as SVG, from zero. `name` begins the ids within it, to which tables may link back."""
    points = watched.points
    allowed = watched.level.figures.arena + watched.limit.allowed_of(watched.level.figures.arena)
    scale = _Scale(len(points), max(allowed, *(point.figures.arena for point in points), 1))
    place = {point.number: index for index, point in enumerate(points)}
    parts = [
        _hatching(name),
        *_axes(points, scale),
        _areas(points, scale, name),
        _limit(scale, place.get(watched.level.number, 0), allowed),
        *_labels(points[-1], scale),
        *_marks(judged, place, scale, name),
    ]
    arena = format_bytes(points[-1].figures.arena)
    spoken = escape(f"{points[-1].series.label} over {len(watched.commits):,} commits, now {arena}")
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg class="trend" {box} role="img" aria-label="{spoken}">{"".join(parts)}</svg>'


class _Scale:
    """Where a commit and a number of bytes stand, pixels."""

    def __init__(self, count: int, most: int) -> None:
        self.count, self.top = count, int(most * HEADROOM)

    def x(self, index: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * index / max(1, self.count)

    def y(self, nbytes: int) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * nbytes / self.top


def _hatching(name: str) -> str:
    line = '<line class="hatch" x1="0" y1="0" x2="0" y2="6"/>'
    turned = 'patternUnits="userSpaceOnUse" width="6" height="6" patternTransform="rotate(45)"'
    return f'<defs><pattern id="{name}-hatch" {turned}>{line}</pattern></defs>'


def _axes(points: Sequence[HistoryPoint], scale: _Scale) -> list[str]:
    parts = []
    for nbytes, label in byte_ticks(scale.top, MOST_TICKS):
        y = scale.y(nbytes)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    every = max(1, -(-len(points) // MOST_DATES))
    for index in range(0, len(points), every):
        x, y = scale.x(index), HEIGHT - BOTTOM + 18
        parts.append(f'<text x="{x:.1f}" y="{y}">{escape(date_of(points[index].run))}</text>')
    return parts


def _areas(points: Sequence[HistoryPoint], scale: _Scale, name: str) -> str:
    """Steps: a commit holds until the next. Points between equal ones are left out."""
    demand = _steps([point.figures.demand for point in points], scale)
    arena = _steps([point.figures.arena for point in points], scale)
    floor = f"{scale.x(len(points)):.1f},{scale.y(0):.1f} {scale.x(0):.1f},{scale.y(0):.1f}"
    band = f"{' '.join(arena)} {' '.join(reversed(demand))}"
    return (
        f'<polygon class="demand" points="{" ".join(demand)} {floor}"/>'
        f'<polygon class="packing" points="{band}"/><polygon fill="url(#{name}-hatch)" points="{band}"/>'
        f'<polyline class="edge" points="{" ".join(demand)}"/>'
        f'<polyline class="arena" points="{" ".join(arena)}"/>'
    )


def _steps(values: Sequence[int], scale: _Scale) -> list[str]:
    edges = [0, *(index + 1 for index, (a, b) in enumerate(pairwise(values)) if a != b), len(values)]
    corners = []
    for begin, end in pairwise(edges):
        y = scale.y(values[begin])
        corners += [f"{scale.x(begin):.1f},{y:.1f}", f"{scale.x(end):.1f},{y:.1f}"]
    return corners


def _limit(scale: _Scale, begin: int, allowed: int) -> str:
    y, end = scale.y(allowed), scale.x(scale.count)
    return f'<line class="limit" x1="{scale.x(begin):.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _labels(latest: HistoryPoint, scale: _Scale) -> list[str]:
    """What the two edges are called, where they end, apart from each other."""
    figures, x = latest.figures, WIDTH - RIGHT + 8
    arena = min(scale.y(figures.arena), scale.y(figures.demand) - LABEL_HEIGHT)
    return [
        f'<text class="name" x="{x}" y="{arena + 4:.1f}">arena {format_bytes(figures.arena)}</text>',
        f'<text x="{x}" y="{scale.y(figures.demand) + 4:.1f}">demand {format_bytes(figures.demand)}</text>',
    ]


def _words(x: float, *words: str) -> str:
    """`words` below each other at the foot of a mark, on the side where there is room."""
    inside = x + LABEL_WIDTH <= WIDTH - RIGHT
    at, anchor = (x + 5, "start") if inside else (x - 5, "end")
    below = HEIGHT - BOTTOM - LABEL_HEIGHT * len(words) + 5
    return "".join(
        f'<text x="{at:.1f}" y="{below + LABEL_HEIGHT * row}" text-anchor="{anchor}">{escape(word)}</text>'
        for row, word in enumerate(words)
    )


def _marks(judged: Sequence[Judged], place: dict[int, int], scale: _Scale, name: str) -> list[str]:
    """A mark for each change, which leads to its row; words where there is room, from the last one back."""
    parts: list[str] = []
    free = float(WIDTH)
    for number, (blame, state) in reversed(list(enumerate(judged))):
        after = blame.change.after
        x, y = scale.x(place[after.number]), scale.y(after.figures.arena)
        title = f"{after.run.label}: {short_cause(blame)}"
        words = ""
        left = x if x + LABEL_WIDTH <= WIDTH - RIGHT else x - LABEL_WIDTH
        if left + LABEL_WIDTH <= free:
            free = left
            words = _words(x, after.run.commit[: SHORT_HASH // 2 + 1], format_signed(blame.change.arena))
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        mark = f'{line}<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>{words}<title>{escape(title)}</title>'
        parts.append(f'<a href="#{name}-change{number}"><g class="{STYLES[state]}">{mark}</g></a>')
    return parts[::-1]
