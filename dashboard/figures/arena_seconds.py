"""Arena against planning time, a point a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from memplan_engine import Plan
from memplan_engine.units import format_bytes, format_percent

MEBI = 2**20


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
    """All plans of one problem and the bound they share."""

    points: tuple[Point, ...]
    bound_bytes: int


def data(plans: Sequence[Plan]) -> Points:
    """The points of `plans`, which must be of one problem; naive is left out, it would flatten the rest."""
    points = tuple(
        Point(plan.strategy, plan.arena_bytes, plan.seconds, plan.gap, plan.optimal)
        for plan in plans
        if plan.strategy != "naive"
    )
    return Points(points, plans[0].bound.nbytes if plans else 0)


def figure(values: Points) -> go.Figure:
    """Milliseconds on a logarithmic axis, MiB upwards, the lower bound dashed."""
    chart = go.Figure()
    for shown, symbol, name in ((True, "star", "optimal"), (False, "circle", "above the bound")):
        group = [point for point in values.points if point.optimal == shown]
        chart.add_scatter(
            x=[1000 * point.seconds for point in group],
            y=[point.arena_bytes / MEBI for point in group],
            mode="markers+text",
            name=name,
            text=[point.strategy for point in group],
            textposition="top center",
            marker={"size": 13, "symbol": symbol, "color": "#228833" if shown else "#4477AA"},
            customdata=[[format_bytes(point.arena_bytes), format_percent(point.gap)] for point in group],
            hovertemplate="%{text}<br>%{customdata[0]}, +%{customdata[1]} over bound<br>%{x:.3g} ms"
            "<extra></extra>",
        )
    chart.add_hline(
        y=values.bound_bytes / MEBI,
        line={"dash": "dash", "width": 1.5},
        annotation_text=f"lower bound {format_bytes(values.bound_bytes)}",
        annotation_position="bottom right",
    )
    chart.update_layout(
        height=380,
        margin={"l": 0, "r": 0, "t": 24, "b": 0},
        xaxis={"title": "planning time, ms (log)", "type": "log"},
        yaxis={"title": "arena, MiB"},
        legend={"orientation": "h", "y": 1.12},
    )
    return chart
