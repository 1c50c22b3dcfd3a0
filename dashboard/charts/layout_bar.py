"""One bar from address 0 upwards: the regions of a layout, each with its largest entries."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go
from memplan_dashboard.charts.markup import escape

from memplan_engine.analysis.layout import Layout, Region, RegionKind
from memplan_engine.plotting.axis_ticks import byte_axis
from memplan_engine.plotting.colouring import HELD_COLOURS
from memplan_engine.units import format_bytes

COLOURS = {
    RegionKind.CONSTANTS: HELD_COLOURS["weight"],
    RegionKind.ACTIVATIONS: HELD_COLOURS["activation"],
    RegionKind.UNIQUE: HELD_COLOURS["temporary"],
    RegionKind.SHARED: "#EE7733",
}
DARK_INK = (RegionKind.ACTIVATIONS, RegionKind.UNIQUE, RegionKind.SHARED)
MOST_PARTS = 40
SMALLEST_SHARE = 0.01
"""Of the whole layout: what is narrower has no name in the bar."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the bar: `start` and `nbytes` in bytes. A whole region, or one entry of a region whose
    entries lie side by side."""

    label: str
    kind: RegionKind
    start: int
    nbytes: int
    whole: bool


def data(layout: Layout) -> list[Part]:
    """The regions, and above them the largest entries of those that are not reused."""
    parts = [Part(r.kind.words, r.kind, r.start, r.nbytes, True) for r in layout.regions]
    for region in layout.regions:
        if region.kind in (RegionKind.CONSTANTS, RegionKind.UNIQUE):
            parts += _largest(region)
    return parts


def _largest(region: Region) -> list[Part]:
    chosen = sorted(region.entries, key=lambda entry: -entry.nbytes)[:MOST_PARTS]
    chosen.sort(key=lambda entry: entry.offset)
    return [Part(e.name, region.kind, region.start + e.offset, e.nbytes, False) for e in chosen]


def figure(parts: list[Part]) -> go.Figure:
    """Regions in the lower row, entries in the upper, over the addresses."""
    total = max((part.start + part.nbytes for part in parts), default=1)
    chart = go.Figure()
    for kind, colour in COLOURS.items():
        own = [part for part in parts if part.kind is kind]
        if not own:
            continue
        named = [part.nbytes >= SMALLEST_SHARE * total * (8 if part.whole else 12) for part in own]
        chart.add_bar(
            name=kind.words,
            base=[part.start for part in own],
            x=[part.nbytes for part in own],
            y=["regions" if part.whole else "entries" for part in own],
            orientation="h",
            marker={"color": colour, "line": {"color": "rgba(255,255,255,0.7)", "width": 1}},
            text=[
                f"{escape(part.label)} · {format_bytes(part.nbytes)}" if name else ""
                for part, name in zip(own, named, strict=True)
            ],
            textposition="inside",
            textfont={"color": "#11141A" if kind in DARK_INK else "#FFFFFF"},
            insidetextanchor="middle",
            customdata=[[escape(part.label), format_bytes(part.nbytes), f"{part.start:,}"] for part in own],
            hovertemplate="%{customdata[0]}<br>%{customdata[1]} from address %{customdata[2]}<extra></extra>",
        )
    rows = [row for row in ("regions", "entries") if any((row == "regions") == part.whole for part in parts)]
    chart.update_layout(
        barmode="overlay",
        height=90 + 46 * len(rows),
        margin={"l": 0, "r": 0, "t": 8, "b": 8},
        xaxis={"range": [0, total], "title": None, **byte_axis(total)},
        yaxis={"title": None, "categoryorder": "array", "categoryarray": rows},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        showlegend=True,
        bargap=0.25,
        uniformtext={"minsize": 10, "mode": "hide"},
    )
    return chart
