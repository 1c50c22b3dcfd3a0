"""Bytes against extra time: schedules that run ops again, and what is proved of every schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.fitted import Fitted
from memplan_engine.plotting.axis_ticks import byte_axis, share_ticks
from memplan_engine.units import format_bytes, format_percent

FOUND, KNOB, LIMIT, RING = "#3B6FA8", "#EE7733", "#CC3311", "rgba(128,128,128,1)"
HATCH = "rgba(128,128,128,0.55)"
PAPER, INK = ("#FFFFFF", "#191919"), ("#31333F", "#FAFAFA")
"""Light and dark."""
NEAR = 1.3
"""How many times the highest arena a limit may be to be drawn."""
RIGHT, HIGH = 0.55, 0.65
"""The parts of the axes from which on words stand to the left of their point, and beside it."""


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A schedule: its arena in bytes, what it takes again and what every schedule in such an arena does at
    least, as shares of what all ops take once."""

    arena: int
    extra: float
    bound: float


@dataclass(frozen=True, slots=True)
class Knob:
    """What another program does at one of its settings, which `label` names."""

    arena: int
    extra: float
    label: str


@dataclass(frozen=True, slots=True)
class MemoryTime:
    """The `points` from the most bytes down; no schedule has an arena of fewer than `least` bytes. `border`
    has extra time and arena from corner to corner of what is proved, from the most bytes down. `room` is what
    the state leaves of the capacity, None without one. `chosen` is the point that answers for it, −1 where
    none does, with what is said of it in `told`."""

    points: tuple[TimePoint, ...]
    least: int
    border: tuple[tuple[float, float], ...]
    room: int | None
    chosen: int
    told: tuple[str, ...]
    knobs: tuple[Knob, ...] = ()


def data(
    fitted: Fitted,
    border: Sequence[tuple[float, float]] = (),
    knobs: Sequence[tuple[int, float, str]] = (),
) -> MemoryTime | None:
    """The curve of `fitted`; None where nothing runs again. `border` has the extra seconds and bytes of what
    is proved, where more of it is known than at the points; `knobs` are arenas, extra seconds and labels."""
    curve = fitted.curve
    if curve is None or len(curve.points) < 2:
        return None
    points = tuple(
        TimePoint(each.plan.arena_bytes, each.time.extra, each.time.bound or 0.0) for each in curve.points
    )
    seconds = curve.points[0].time.seconds or 1.0
    chosen, told = _chosen(fitted, points)
    room = None if fitted.capacity is None else fitted.capacity - fitted.state_bytes
    marks = tuple(Knob(arena, extra / seconds, label) for arena, extra, label in knobs)
    corners = [(extra / seconds, nbytes) for extra, nbytes in border] or stairs(points, curve.least_bytes)
    return MemoryTime(points, curve.least_bytes, tuple(corners), room, chosen, told, marks)


def _chosen(fitted: Fitted, points: Sequence[TimePoint]) -> tuple[int, tuple[str, ...]]:
    """The point that is the best stage, and its words."""
    best = fitted.best
    arenas = [point.arena for point in points]
    if fitted.capacity is None or best.plan.arena_bytes not in arenas:
        return -1, ()
    place = arenas.index(best.plan.arena_bytes)
    fits = fitted.verdict is Verdict.FITS
    words = f"{'chosen' if fits else 'smallest found'} {format_bytes(best.plan.arena_bytes)}"
    if best.time is None or not best.time.extra_seconds:
        return place, (words, "nothing runs again")
    told = f"{words}, +{format_percent(best.time.extra)}"
    if not best.time.bound:
        return place, (told,)
    return place, (told, f"no schedule is quicker than +{format_percent(best.time.bound)}")


def arena_of(point: Mapping[str, Any]) -> int | None:
    """The bytes of a point that was clicked; None for what is no schedule that was found."""
    told: Sequence[Any] = point.get("customdata") or ()
    return int(told[1]) if len(told) == 2 else None


def stairs(points: Sequence[TimePoint], least: int) -> list[tuple[float, float]]:
    """The border that is known from `points` alone: what is proved for an arena holds for every smaller
    one."""
    corners: list[tuple[float, float]] = []
    proved = 0.0
    lower = [*(point.arena for point in points[1:]), least]
    for point, below in zip(points, lower, strict=True):
        proved = max(proved, point.bound)
        corners += [(proved, point.arena), (proved, below)]
    return corners


def figure(values: MemoryTime, dark: bool = False) -> go.Figure:
    """What was found as a line with dots, the border of what is proved dashed, and below it hatched."""
    chart = go.Figure()
    drawn: list[TimePoint | Knob] = [*values.points, *values.knobs]
    far = 1.08 * max(each.extra for each in drawn) or 1.0
    highest = max(each.arena for each in drawn)
    room = values.room
    near = room is not None and 0 <= room <= NEAR * highest
    top = max(highest, room if near and room is not None else 0)
    _found(chart, values)
    _proved(chart, values, far)
    if near and room is not None:
        chart.add_scatter(
            x=[0, far],
            y=[room, room],
            mode="lines",
            name=f"left for the arena: {format_bytes(room)}",
            line={"color": LIMIT, "width": 2, "dash": "dot"},
            hoverinfo="skip",
        )
    _knobs(chart, values)
    _callout(chart, values, far, top, dark)
    shares = share_ticks(far)
    chart.update_layout(
        # A legend of torch's is a line more.
        height=400 if values.knobs else 340,
        margin={"l": 0, "r": 12, "t": 4, "b": 4},
        xaxis={
            "title": "extra time",
            "range": [-0.02 * far, far],
            "tickvals": list(shares),
            "ticktext": [f"+{told}" if share else "0 %" for share, told in shares.items()],
            "zeroline": False,
            "fixedrange": True,
        },
        yaxis={"range": [0, 1.1 * top or 1], "fixedrange": True, **byte_axis(top)},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="closest",
    )
    return chart


def _proved(chart: go.Figure, values: MemoryTime, far: float) -> None:
    corners = [(0.0, values.points[0].arena), *values.border, (far, values.least)]
    chart.add_scatter(
        x=[*(extra for extra, _ in corners), far, 0],
        y=[*(arena for _, arena in corners), 0, 0],
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillpattern={"shape": "/", "fgcolor": HATCH, "bgcolor": "rgba(128,128,128,0.06)", "size": 9},
        name="no schedule: proved",
        hoverinfo="skip",
    )
    chart.add_scatter(
        x=[extra for extra, _ in corners],
        y=[arena for _, arena in corners],
        mode="lines",
        line={"color": RING, "width": 2, "dash": "6px,3px"},
        hoverinfo="skip",
        showlegend=False,
    )


def _knobs(chart: go.Figure, values: MemoryTime) -> None:
    if not values.knobs:
        return
    chart.add_scatter(
        x=[knob.extra for knob in values.knobs],
        y=[knob.arena for knob in values.knobs],
        mode="lines+markers+text",
        name="torch, by its activation_memory_budget",
        marker={"symbol": "triangle-up", "size": 11, "color": KNOB},
        line={"color": KNOB, "width": 1, "dash": "dot"},
        text=[knob.label for knob in values.knobs],
        textposition="top right",
        customdata=[f"{format_bytes(each.arena)}, +{format_percent(each.extra)}" for each in values.knobs],
        hovertemplate="%{text}: %{customdata}<extra></extra>",
        cliponaxis=False,
    )


def _found(chart: go.Figure, values: MemoryTime) -> None:
    chart.add_scatter(
        x=[point.extra for point in values.points],
        y=[point.arena for point in values.points],
        mode="lines+markers",
        name="found",
        line={"color": FOUND, "width": 2.5},
        marker={"size": 10, "color": FOUND},
        # A click chooses a capacity; the others stay as they are.
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        customdata=[
            [
                f"{format_bytes(point.arena)}, +{format_percent(point.extra)}"
                + f"<br>no schedule is quicker than +{format_percent(point.bound)}" * bool(point.bound),
                point.arena,
            ]
            for point in values.points
        ],
        hovertemplate="%{customdata[0]}<extra></extra>",
        cliponaxis=False,
        # Above what is proved, which is drawn behind it and told after it.
        zorder=1,
    )


def _callout(chart: go.Figure, values: MemoryTime, far: float, top: int, dark: bool) -> None:
    if values.chosen < 0:
        return
    point = values.points[values.chosen]
    chart.add_scatter(
        x=[point.extra],
        y=[point.arena],
        mode="markers",
        marker={"symbol": "circle-open", "size": 20, "color": RING, "line": {"width": 2.5}},
        hoverinfo="skip",
        showlegend=False,
        cliponaxis=False,
    )
    left, high = point.extra > RIGHT * far, point.arena > HIGH * top
    first, *more = values.told
    chart.add_annotation(
        x=point.extra,
        y=point.arena,
        text="<br>".join([f"<b>{first}</b>", *more]),
        align="left",
        ax=-30 if left else 44,
        ay=-14 if high else -58,
        xanchor="right" if left else "left",
        arrowcolor=RING,
        standoff=11,
        bordercolor=RING,
        borderwidth=1,
        borderpad=5,
        bgcolor=PAPER[dark],
        font={"color": INK[dark]},
        arrowhead=0,
    )
