"""Live bytes of an order step by step, below the peaks that it is held against."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go
from memplan_dashboard.charts.markup import escape

from memplan_engine.plotting.axis_ticks import byte_axis
from memplan_engine.units import format_bytes

LIVE, PEAK = "#9DB8D6", "#3B6FA8"
LINES = (("#EE7733", "dash"), ("#228833", "dot"), ("#AA3377", "dashdot"))
MOST_NAMED = 40


@dataclass(frozen=True, slots=True)
class LiveSteps:
    """`names` of the ops in their order, with the bytes `live` while each runs; `count` is how many there
    are in all. `lines` are other peaks, what each is called with its bytes."""

    names: tuple[str, ...]
    live: tuple[int, ...]
    count: int
    lines: tuple[tuple[str, int], ...]


def figure(steps: LiveSteps) -> go.Figure:
    """A bar a step, the highest ones dark."""
    peak = max(steps.live, default=0)
    top = max(peak, *(nbytes for _, nbytes in steps.lines), 1)
    chart = go.Figure()
    named = steps.count <= MOST_NAMED
    chart.add_bar(
        x=list(range(len(steps.live))),
        y=list(steps.live),
        marker={"color": [PEAK if live == peak else LIVE for live in steps.live], "line": {"width": 0}},
        text=[format_bytes(live) for live in steps.live] if steps.count <= MOST_NAMED // 2 else None,
        textposition="inside",
        insidetextanchor="end",
        textfont={"color": ["#FFFFFF" if live == peak else "#000000" for live in steps.live]},
        textangle=0,
        cliponaxis=False,
        customdata=[f"{escape(n)}: {live:,} B" for n, live in zip(steps.names, steps.live, strict=True)],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )
    for (name, nbytes), (color, dash) in zip(steps.lines, LINES, strict=False):
        chart.add_scatter(
            x=[-0.5, max(steps.count, 1) - 0.5],
            y=[nbytes, nbytes],
            mode="lines",
            name=f"{name} {format_bytes(nbytes)}",
            line={"color": color, "width": 2, "dash": dash},
            hoverinfo="skip",
        )
    ticks = {"tickvals": list(range(len(steps.names))), "ticktext": [escape(n) for n in steps.names]}
    chart.update_layout(
        height=220,
        margin={"l": 0, "r": 8, "t": 24, "b": 4},
        xaxis={"range": [-0.5, max(steps.count, 1) - 0.5], "fixedrange": True, **(ticks if named else {})},
        yaxis={"range": [0, 1.18 * top], "fixedrange": True, **byte_axis(top)},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        bargap=0.25 if named else 0,
    )
    return chart
