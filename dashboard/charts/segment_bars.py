"""The segments of a simulated allocator at one step: a bar each, with what lies in it at its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from memplan_dashboard.charts.markup import escape

from memplan_engine.allocator.segments import HeldBlock, HeldSegment
from memplan_engine.callers import Stacks
from memplan_engine.plotting.axis_ticks import byte_axis
from memplan_engine.units import format_bytes

MOST_SEGMENTS, MOST_BLOCKS = 24, 2_000
"""The largest segments and blocks are drawn: more rows are not told apart, more boxes not drawn at once."""
USED, CACHED = "#4477AA", "rgba(128,128,128,0.28)"
ROW = 18


@dataclass(frozen=True, slots=True)
class Bars:
    """The segments that are drawn, the largest first, how many there are in all, and their stacks."""

    segments: tuple[HeldSegment, ...]
    count: int
    stacks: Stacks


def data(segments: tuple[HeldSegment, ...], stacks: Stacks) -> Bars:
    """The largest segments."""
    chosen = sorted(segments, key=lambda each: (-each.nbytes, each.address))[:MOST_SEGMENTS]
    return Bars(tuple(chosen), len(segments), stacks)


def block_of(point: Mapping[str, Any]) -> HeldBlock | None:
    """The block of a bar that was clicked, None for what is cached."""
    told = point.get("customdata") or ()
    return HeldBlock(*told[3:]) if len(told) == 6 else None


def _gaps(segment: HeldSegment) -> Iterator[tuple[int, int]]:
    """What is in use by nobody, from byte to byte of the segment."""
    low = 0
    for block in segment.blocks:
        if block.offset > low:
            yield low, block.offset
        low = block.offset + block.nbytes
    if low < segment.nbytes:
        yield low, segment.nbytes


def _add_cached(chart: go.Figure, bars: Bars, names: list[str]) -> None:
    """The gaps between blocks, not bars behind them: a click is for what lies under the pointer."""
    gaps = [
        (name, segment, *gap)
        for name, segment in zip(names, bars.segments, strict=True)
        for gap in _gaps(segment)
    ]
    gaps = sorted(gaps, key=lambda each: each[2] - each[3])[:MOST_BLOCKS]
    chart.add_bar(
        name="cached",
        base=[low for _, _, low, _ in gaps],
        x=[high - low for _, _, low, high in gaps],
        y=[name for name, *_ in gaps],
        orientation="h",
        marker={"color": CACHED},
        customdata=[
            [format_bytes(high - low), format_bytes(segment.nbytes), segment.stream]
            for _, segment, low, high in gaps
        ],
        hovertemplate="%{customdata[0]} cached, in a segment of %{customdata[1]}, stream %{customdata[2]}"
        "<extra></extra>",
    )


def figure(bars: Bars) -> go.Figure:
    """A row for each segment, from its first byte on; grey is cached, in use by nobody."""
    names = [f"{number + 1}" for number in range(len(bars.segments))]
    blocks = [
        (name, block) for name, segment in zip(names, bars.segments, strict=True) for block in segment.blocks
    ]
    blocks = sorted(blocks, key=lambda each: -each[1].nbytes)[:MOST_BLOCKS]
    chart = go.Figure()
    _add_cached(chart, bars, names)
    chart.add_bar(
        name="in use",
        base=[block.offset for _, block in blocks],
        x=[block.nbytes for _, block in blocks],
        y=[name for name, _ in blocks],
        orientation="h",
        marker={"color": USED, "line": {"color": "rgba(255,255,255,0.6)", "width": 0.5}},
        customdata=[
            [
                escape(bars.stacks.caller(block.stack).label),
                format_bytes(block.nbytes),
                f"{block.offset:,}",
                *(block.offset, block.nbytes, block.stack),
            ]
            for _, block in blocks
        ],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]} from byte %{customdata[2]} of the segment"
        "<extra></extra>",
    )
    longest = max((segment.nbytes for segment in bars.segments), default=1)
    chart.update_layout(
        barmode="overlay",
        height=106 + ROW * len(names),
        margin={"l": 0, "r": 0, "t": 8, "b": 24},
        xaxis={"range": [0, longest], "title": None, **byte_axis(longest)},
        yaxis={
            "title": None,
            "type": "category",
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": names,
        },
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        bargap=0.2,
    )
    return chart
