"""The best arena and the proven bound while a search goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from memplan_engine.strategies.base import Progress
from memplan_engine.units import format_bytes

MOST_POINTS = 400
HEIGHT = 215
"""Of the chart, CSS pixels."""
ARENA, BOUND = "#4477AA", "#228833"


@dataclass(frozen=True, slots=True)
class Course:
    """`arena` and `bound` in bytes from each of `seconds` on; the axis ends at `until` seconds."""

    seconds: tuple[float, ...]
    arena: tuple[int, ...]
    bound: tuple[int, ...]
    until: float


def data(history: Sequence[Progress], until: float) -> Course:
    """The course of `history`, whose every entry has an arena and a bound; thinned to MOST_POINTS."""
    step = max(1, -(-len(history) // MOST_POINTS))
    kept = [*history[:-1:step], history[-1]]
    return Course(
        tuple(each.seconds for each in kept),
        tuple(each.arena_bytes or 0 for each in kept),
        tuple(each.bound_bytes or 0 for each in kept),
        max(until, history[-1].seconds),
    )


def figure(course: Course) -> go.Figure:
    """Steps: each value holds until the next; what lies between the lines is not known yet."""
    chart = go.Figure()
    for name, values, colour, dash, fill in (
        ("lower bound", course.bound, BOUND, "dash", None),
        ("best arena", course.arena, ARENA, "solid", "tonexty"),
    ):
        chart.add_scatter(
            x=course.seconds,
            y=values,
            name=name,
            mode="lines",
            line={"shape": "hv", "color": colour, "dash": dash, "width": 2},
            fill=fill,
            fillcolor="rgba(68, 119, 170, 0.15)",
            customdata=[format_bytes(value) for value in values],
            hovertemplate="%{customdata}",
        )
    low, high = min(course.bound), max(course.arena)
    room = 0.08 * (high - low) or 1.0
    ticks = [low, high] if high > low else [low]
    chart.update_layout(
        height=HEIGHT,
        margin={"l": 0, "r": 12, "t": 4, "b": 4},
        xaxis={"range": [0, course.until], "ticksuffix": " s", "hoverformat": ".1f", "nticks": 8},
        yaxis={
            "range": [low - room, high + room],
            "tickvals": ticks,
            "ticktext": [format_bytes(tick) for tick in ticks],
        },
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
        transition={"duration": 0},
    )
    return chart
