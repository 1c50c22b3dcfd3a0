"""What each stage of a fit leaves of the arena, with its bound, below what the state leaves of a capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from memplan_engine.fitting.fitted import Fitted, StageName
from memplan_engine.plotting.axis_ticks import byte_axis
from memplan_engine.units import format_bytes, format_percent

SHORT = {
    StageName.CAPTURED: "as captured",
    StageName.IN_PLACE: "in place",
    StageName.REORDER: "order",
    StageName.GRADIENTS: "gradients",
    StageName.CHUNK: "in pieces",
    StageName.RECOMPUTE: "run again",
    StageName.OFFLOAD: "copies",
}
FIRST, OTHER, BEST = "#8A8A8A", "#9DB8D6", "#3B6FA8"
SAVED, LIMIT, BOUND = "#228833", "#CC3311", "rgba(128,128,128,1)"
FREE = "rgba(128,128,128,0.12)"
ROOM = 0.1
"""The part of the bar from which on a part has room for its bytes."""
HALF = 0.32
"""Of a bar's width, where bars stand one apart."""
NEAR = 3.0
"""How many times the highest bar a limit may be for the axis to reach up to it."""


@dataclass(frozen=True, slots=True)
class StageBar:
    """A stage: its arena, what it saves against the stage before (negative where it does not), and the least
    that is proved to be needed, of this order of ops or of all. Bytes. `extra` is the time that it takes, as
    a share of what all ops take once."""

    label: str
    arena: int
    saved: int
    bound: int
    proved: bool
    of_all_orders: bool
    is_best: bool
    extra: float = 0.0


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The bars, and `room`, what the state leaves of the capacity; None without a capacity. Bytes."""

    bars: tuple[StageBar, ...]
    room: int | None


def data(fitted: Fitted) -> Waterfall:
    """A bar a stage."""
    best, bars, before = fitted.best, [], fitted.stages[0].plan.arena_bytes
    for stage in fitted.stages:
        arena = stage.plan.arena_bytes
        bars.append(
            StageBar(
                SHORT[stage.name],
                arena,
                before - arena,
                stage.bound_bytes,
                stage.proved,
                stage.is_of_all_orders,
                stage is best,
                stage.time.extra if stage.time else 0.0,
            )
        )
        before = arena
    room = None if fitted.capacity is None else fitted.capacity - fitted.state_bytes
    return Waterfall(tuple(bars), room)


def capacity_figure(state: int, arena: int, capacity: int) -> go.Figure:
    """One bar: the state first, then the arena, then what is left of the capacity. Bytes."""
    chart = go.Figure()
    left = max(0, capacity - state - arena)
    parts = (
        ("state", state, FIRST, "#FFFFFF"),
        ("arena", arena, BEST, "#FFFFFF"),
        ("left", left, FREE, "#808080"),
    )
    for name, nbytes, colour, ink in parts:
        told = f"{name} {format_bytes(nbytes)}"
        share = nbytes / max(state + arena, capacity, 1)
        chart.add_bar(
            x=[nbytes],
            y=[""],
            orientation="h",
            name=told,
            marker={"color": colour, "line": {"color": "rgba(128,128,128,0.6)", "width": 1}},
            text=told if share >= ROOM else "",
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": ink},
            customdata=[f"{nbytes:,} B"],
            hovertemplate=f"{name}: %{{customdata}}<extra></extra>",
            showlegend=bool(nbytes),
        )
    chart.add_shape(
        type="line",
        x0=capacity,
        x1=capacity,
        y0=-0.5,
        y1=0.5,
        line={"color": LIMIT, "width": 3, "dash": "dot"},
    )
    chart.update_layout(
        barmode="stack",
        height=70,
        margin={"l": 0, "r": 8, "t": 32, "b": 2},
        xaxis={"visible": False, "range": [0, 1.005 * max(state + arena, capacity, 1)], "fixedrange": True},
        yaxis={"visible": False, "fixedrange": True},
        legend={"orientation": "h", "y": 1.25, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        bargap=0,
    )
    return chart


def figure(waterfall: Waterfall) -> go.Figure:
    """Bars of bytes; what a stage saves is a dashed box above its bar, its bound a dashed line across it."""
    bars, room = waterfall.bars, waterfall.room
    highest = max((bar.arena for bar in bars), default=0)
    near = room is not None and 0 <= room <= NEAR * max(highest, 1)
    top = max(highest, room if near and room is not None else 0)
    chart = go.Figure()
    colours = [BEST if bar.is_best else OTHER if place else FIRST for place, bar in enumerate(bars)]
    chart.add_bar(
        x=list(range(len(bars))),
        y=[bar.arena for bar in bars],
        width=2 * HALF,
        marker={"color": colours, "line": {"width": 0}},
        text=[format_bytes(bar.arena) for bar in bars],
        textposition="inside",
        insidetextanchor="end",
        textangle=0,
        textfont={"color": ["#000000" if colour == OTHER else "#FFFFFF" for colour in colours], "size": 14},
        customdata=[f"{bar.arena:,} B" for bar in bars],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )
    _saved(chart, bars)
    _bounds(chart, bars)
    if near and room is not None:
        _limit(chart, room, len(bars))
    chart.update_layout(
        height=300,
        margin={"l": 0, "r": 8, "t": 22, "b": 4},
        xaxis={
            "tickvals": list(range(len(bars))),
            "ticktext": [_label(bar) for bar in bars],
            "range": [-0.6, len(bars) - 0.4],
            "showgrid": False,
            "zeroline": False,
            "tickfont": {"size": 13},
            "fixedrange": True,
        },
        yaxis={"range": [0, 1.12 * top or 1], "fixedrange": True, **byte_axis(top)},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        bargap=0,
    )
    return chart


def _label(bar: StageBar) -> str:
    return f"{bar.label}<br>+{format_percent(bar.extra)} time" if bar.extra else bar.label


def _saved(chart: go.Figure, bars: Sequence[StageBar]) -> None:
    for place, bar in enumerate(bars):
        if bar.saved <= 0:
            continue
        chart.add_shape(
            type="rect",
            x0=place - HALF,
            x1=place + HALF,
            y0=bar.arena,
            y1=bar.arena + bar.saved,
            line={"color": SAVED, "width": 1, "dash": "dot"},
            fillcolor="rgba(34, 136, 51, 0.12)",
        )
        chart.add_shape(
            type="line",
            x0=place - 1 + HALF,
            x1=place - HALF,
            y0=bar.arena + bar.saved,
            y1=bar.arena + bar.saved,
            line={"color": "rgba(128,128,128,0.6)", "width": 1},
        )
        chart.add_annotation(
            x=place,
            y=bar.arena + bar.saved,
            text=f"−{format_bytes(bar.saved)}",
            showarrow=False,
            yshift=10,
            font={"size": 13},
        )


def _bounds(chart: go.Figure, bars: Sequence[StageBar]) -> None:
    """A line across each bar; a gap between two."""
    across: list[float | None] = []
    heights: list[int | None] = []
    for place, bar in enumerate(bars):
        across += [place - HALF - 0.06, place + HALF + 0.06, None]
        heights += [bar.bound, bar.bound, None]
    chart.add_scatter(
        x=across,
        y=heights,
        mode="lines",
        name="lower bound, proved",
        line={"color": BOUND, "width": 3, "dash": "6px,3px"},
        hoverinfo="skip",
    )


def _limit(chart: go.Figure, room: int, count: int) -> None:
    chart.add_scatter(
        x=[-0.6, count - 0.4],
        y=[room, room],
        mode="lines",
        name=f"left for the arena: {format_bytes(room)}",
        line={"color": LIMIT, "width": 2, "dash": "dot"},
        hoverinfo="skip",
    )
