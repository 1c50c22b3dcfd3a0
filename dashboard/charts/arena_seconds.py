"""Arena against planning time, a point a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

import plotly.graph_objects as go

from memplan_engine import Plan
from memplan_engine.units import format_bytes, format_percent

MEBI = 2**20
LEGEND_ROW = 19
"""Pixels."""
SYMBOLS = ("star", "circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "pentagon")
COLOURS = (
    "#228833",
    "#4477AA",
    "#EE6677",
    "#AA3377",
    "#CCBB44",
    "#66CCEE",
    "#EE7733",
    "#44AA99",
    "#999933",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One plan: bytes, seconds, gap to the bound."""

    strategy: str
    arena_bytes: int
    seconds: float
    gap: float
    optimal: bool


@dataclass(frozen=True, slots=True)
class Points:
    """All plans of one problem and the best bound that one of them has proved."""

    points: tuple[Point, ...]
    bound_bytes: int


def data(plans: Sequence[Plan]) -> Points:
    """The points of `plans`, which must be of one problem; left out are naive, which would flatten the
    rest, and what nobody timed, as a placement that was recorded."""
    points = tuple(
        Point(plan.strategy, plan.arena_bytes, plan.seconds, plan.gap, plan.optimal)
        for plan in plans
        if plan.strategy != "naive" and plan.seconds
    )
    return Points(points, max((plan.bound.nbytes for plan in plans), default=0))


def figure(values: Points) -> go.Figure:
    """Milliseconds on a logarithmic axis, MiB upwards, the lower bound dashed; a colour and a symbol each."""
    chart = go.Figure()
    for place, point in enumerate(values.points):
        chart.add_scatter(
            x=[max(1000 * point.seconds, 1e-3)],
            y=[point.arena_bytes / MEBI],
            mode="markers",
            name=point.strategy,
            marker={
                "size": 15 if point.optimal else 11,
                "symbol": _symbol(place),
                "color": COLOURS[place % len(COLOURS)],
                "line": {"width": 2} if place >= len(SYMBOLS) else {"width": 1, "color": "white"},
            },
            customdata=[[format_bytes(point.arena_bytes), format_percent(point.gap)]],
            hovertemplate="%{customdata[0]}, %{customdata[1]} over bound<br>%{x:.3g} ms",
        )
    chart.add_hline(
        y=values.bound_bytes / MEBI,
        line={"dash": "dash", "width": 1.5, "color": "#4477AA"},
        annotation_text=f"lower bound {format_bytes(values.bound_bytes)}",
        annotation_position="bottom right",
        annotation_yshift=-10,
    )
    chart.update_layout(
        # Above half of the height Plotly would scroll the legend.
        height=max(340 + LEGEND_ROW * len(values.points), 2 * LEGEND_ROW * (len(values.points) + 1)),
        margin={"l": 0, "r": 0, "t": 8, "b": 50 + LEGEND_ROW * len(values.points)},
        xaxis={"title": "planning time, ms", "type": "log", "showgrid": True, **_ticks(values)},
        yaxis={"title": "arena, MiB"},
        legend={"yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
    )
    return chart


def _symbol(place: int) -> str:
    """Filled for the first strategies, open for the next: with its colour no two are alike."""
    return SYMBOLS[place % len(SYMBOLS)] + ("-open" if place // len(SYMBOLS) % 2 else "")


def _ticks(values: Points) -> dict[str, object]:
    """1, 2, 5, 10 … milliseconds, written out: Plotly would write 0.5 as a small 5."""
    times = [max(1000 * point.seconds, 1e-3) for point in values.points] or [1.0]
    decades = range(floor(log10(min(times))) - 1, ceil(log10(max(times))) + 2)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    return {
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" for tick in ticks],
        "range": [log10(min(times) / 1.5), log10(max(times) * 1.5)],
    }
