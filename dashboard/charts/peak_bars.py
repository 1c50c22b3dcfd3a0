"""Bars of what the peak is made of."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from memplan_engine import Peak
from memplan_engine.units import format_bytes, format_percent

MOST_BARS = 12


@dataclass(frozen=True, slots=True)
class Bar:
    """A contributor, or what is left behind the last bar (`buffer` None). Bytes; share of the peak."""

    label: str
    nbytes: int
    share: float
    buffer: int | None


def data(peak: Peak) -> list[Bar]:
    """The largest contributors, largest first; what does not fit is summed up in a last bar."""
    bars = [
        Bar(part.label, part.nbytes, part.nbytes / peak.nbytes, part.buffer) for part in peak.contributors
    ]
    if len(bars) <= MOST_BARS:
        return bars
    rest = bars[MOST_BARS - 1 :]
    nbytes = sum(bar.nbytes for bar in rest)
    return [*bars[: MOST_BARS - 1], Bar(f"{len(rest)} others", nbytes, nbytes / peak.nbytes, None)]


def figure(bars: list[Bar], selected: int | None) -> go.Figure:
    """Horizontal bars with their sizes written at the end; the selected buffer's bar stands out."""
    colours = [
        "#EE6677" if bar.buffer is not None and bar.buffer == selected else
        "#4477AA" if bar.buffer is not None else "#999999"
        for bar in bars
    ]  # fmt: skip
    texts = [f"{format_bytes(bar.nbytes)} · {format_percent(bar.share)}" for bar in bars]
    chart = go.Figure(
        go.Bar(
            x=[bar.nbytes for bar in bars],
            y=[f"{place} · {shorten(bar.label)}" for place, bar in enumerate(bars, 1)],
            customdata=[[escape(bar.label), text] for bar, text in zip(bars, texts, strict=True)],
            orientation="h",
            marker={"color": colours},
            text=texts,
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        )
    )
    largest = max((bar.nbytes for bar in bars), default=1)
    chart.update_layout(
        height=60 + 28 * len(bars),
        margin={"l": 0, "r": 0, "t": 8, "b": 8},
        xaxis={"visible": False, "range": [0, 1.9 * largest]},
        yaxis={"autorange": "reversed", "title": None},
        bargap=0.25,
    )
    return chart


def escape(text: str) -> str:
    """Names are text: Plotly would read tags in them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def shorten(text: str, limit: int = 28) -> str:
    """The name for an axis, cut in the middle when it is long."""
    if len(text) > limit:
        half = (limit - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return escape(text)
