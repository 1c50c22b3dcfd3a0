"""One rank over the ops of a step: bytes of each category stacked, what is reserved above them, and the
capacity; and the same as a small picture."""

from __future__ import annotations

import itertools

import numpy as np
import plotly.graph_objects as go
from memplan_dashboard.charts.markup import escape
from numpy.typing import NDArray

from memplan_engine.devices.rank_timeline import RankTimeline
from memplan_engine.plotting.axis_ticks import byte_axis, count_axis
from memplan_engine.plotting.colouring import HELD_COLOURS
from memplan_engine.units import format_bytes

MOST_POINTS = 1_200
RESERVED, CAPACITY = "#808080", "#CC3311"
WIDTH, HEIGHT = 240, 44


def thinned(values: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most of `values` from each of `starts` to the next."""
    return np.maximum.reduceat(values, starts)


def starts_of(count: int, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Where `most` stretches of `count` values begin."""
    return np.unique(np.linspace(0, count, min(most, count), endpoint=False).astype(np.int64))


def figure(
    line: RankTimeline, capacity: int, failed: int | None, phases: list[tuple[str, int, int]]
) -> go.Figure:
    """The stacked areas; `capacity` is what the allocator can have, `failed` the op that runs out, `phases`
    are named below the axis."""
    chart = go.Figure()
    starts = starts_of(line.end - line.first)
    ops = np.append(line.first + starts, line.end)
    total = np.sum([*line.live.values()], axis=0)
    # All categories of one stretch at the op where most is live there: a stack of maxima would be too high.
    bounds = np.append(starts, line.end - line.first)
    at = np.array([low + int(total[low:high].argmax()) for low, high in itertools.pairwise(bounds)])
    for name, colour in HELD_COLOURS.items():
        if name not in line.live or not line.live[name].any():
            continue
        values = line.live[name][at]
        values = np.append(values, values[-1])
        chart.add_scatter(
            x=ops,
            y=values,
            name=name,
            mode="lines",
            line={"shape": "hv", "width": 0.5, "color": colour},
            fillcolor=colour,
            stackgroup="live",
            customdata=[format_bytes(int(value)) for value in values],
            hovertemplate="%{customdata}",
        )
    reserved = thinned(line.reserved, starts)
    reserved = np.append(reserved, reserved[-1])
    chart.add_scatter(
        x=ops,
        y=reserved,
        name="reserved",
        mode="lines",
        line={"shape": "hv", "width": 1.5, "color": RESERVED, "dash": "dash"},
        customdata=[format_bytes(int(value)) for value in reserved],
        hovertemplate="%{customdata}",
    )
    top = int(max(reserved.max(), total.max()))
    top = _mark(chart, line, top, capacity, failed)
    for name, low, high in phases:
        chart.add_annotation(
            x=(low + high) / 2, y=1.0, yref="paper", yanchor="bottom", showarrow=False, text=escape(name)
        )
        if low > line.first:
            chart.add_vline(low, line={"color": RESERVED, "width": 1, "dash": "dot"})
    chart.update_layout(
        height=380,
        margin={"l": 0, "r": 0, "t": 24, "b": 8},
        xaxis={**count_axis(line.end, "op of the run", 8), "range": [line.first, line.end]},
        yaxis={"title": None, "range": [0, top * 1.06], **byte_axis(top)},
        legend={"orientation": "h", "y": -0.16, "yanchor": "top", "x": 0},
        hovermode="x unified",
    )
    return chart


def _mark(chart: go.Figure, line: RankTimeline, top: int, capacity: int, failed: int | None) -> int:
    """Draw the capacity, where it is near what is reserved, and where memory runs out; how high it is."""
    if 0 < capacity <= 2 * top:
        top = max(top, capacity)
        chart.add_hline(capacity, line={"color": CAPACITY, "width": 1.5})
        chart.add_annotation(
            x=0,
            xref="paper",
            y=capacity,
            yanchor="bottom",
            xanchor="left",
            showarrow=False,
            text=f"left to the allocator: {format_bytes(capacity)}",
        )
    if failed is not None and line.first <= failed < line.end:
        chart.add_scatter(
            x=[failed],
            y=[capacity],
            mode="markers",
            name="out of memory",
            showlegend=False,
            marker={"color": CAPACITY, "size": 12, "symbol": "x"},
            hovertemplate="out of memory here<extra></extra>",
        )
    return top


def small(line: RankTimeline, top: int, capacity: int) -> str:
    """A picture of live bytes and reserved ones up to `top`, as SVG."""
    starts = starts_of(line.end - line.first, WIDTH // 2)
    live = thinned(np.sum([*line.live.values()], axis=0), starts)
    reserved = thinned(line.reserved, starts)

    def path(values: NDArray[np.int64]) -> str:
        step = WIDTH / len(values)
        return " ".join(
            f"L{place * step:.1f},{HEIGHT - HEIGHT * value / top:.1f} H{(place + 1) * step:.1f}"
            for place, value in enumerate(values.tolist())
        )

    dotted = ""
    if capacity <= top:
        y = HEIGHT - HEIGHT * capacity / top
        dotted = f'<line x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{CAPACITY}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none">'
        f'<path d="M0,{HEIGHT} {path(live)} V{HEIGHT} Z" fill="#4477AA"/>'
        f'<path d="M0,{HEIGHT} {path(reserved)}" fill="none" stroke="{RESERVED}" stroke-dasharray="3 2"/>'
        f"{dotted}</svg>"
    )


def configurations(names: list[str], reserved: list[int], fullest: list[str], capacity: int) -> go.Figure:
    """A bar for each configuration: what its fullest rank reserves."""
    top = max(reserved)
    chart = go.Figure()
    chart.add_bar(
        x=reserved,
        y=[escape(name) for name in names],
        orientation="h",
        marker={"color": ["#CC3311" if each > capacity else "#4477AA" for each in reserved]},
        text=[f"{format_bytes(each)}, {escape(rank)}" for each, rank in zip(reserved, fullest, strict=True)],
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    if capacity <= 2 * top:
        top = max(top, capacity)
        chart.add_vline(capacity, line={"color": CAPACITY, "width": 1.5})
    chart.update_layout(
        height=70 + 34 * len(names),
        margin={"l": 0, "r": 0, "t": 8, "b": 8},
        xaxis={"range": [0, top * 1.06], "title": None, **byte_axis(top)},
        yaxis={"title": None, "type": "category", "autorange": "reversed"},
        showlegend=False,
    )
    return chart
