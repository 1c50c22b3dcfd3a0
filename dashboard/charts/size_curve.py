"""The arena, the lower bound and the partition plan as functions of one symbol."""

from __future__ import annotations

import math
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memplan_engine.plotting.axis_ticks import LEAST_SHARE, byte_values, share_ticks
from memplan_engine.symbolic import Sweep
from memplan_engine.units import format_bytes, format_percent

WIDE = 32
"""From this ratio between the ends of the range on, both axes are logarithmic."""
LINES = (
    ("partition", "partition plan, one for all values", "#EE7733", "solid", 7.0),
    ("arena", "planned anew at each value", "#4477AA", "solid", 3.0),
    ("bound", "lower bound", "#228833", "dash", 1.5),
)
"""Wide below narrow, so that lines which meet can all be seen."""
MOST_TICKS = 9


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes at each of `values` of `symbol`; `hint` is where the schema was decided, `now` what is shown."""

    symbol: str
    values: tuple[int, ...]
    lines: dict[str, tuple[int, ...]]
    hint: int
    now: int


def data(made: Sweep, now: int) -> Curve:
    """The lines of a sweep."""
    lines = {"partition": made.partition, "arena": made.arena, "bound": made.bound}
    return Curve(made.symbol, made.values, lines, made.hint, now)


def figure(curve: Curve) -> go.Figure:
    """Bytes over the symbol, the hint and the value that is shown marked; below, how far over the bound."""
    chart = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.68, 0.32], vertical_spacing=0.07)
    for key, label, colour, dash, width in LINES:
        values = curve.lines[key]
        chart.add_scatter(
            x=curve.values,
            y=values,
            name=label,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": width},
            marker={"size": 5},
            opacity=0.55 if width > 5 else 1.0,
            customdata=[format_bytes(value) for value in values],
            hovertemplate="%{customdata}",
            row=1,
            col=1,
        )
        if key != "bound":
            chart.add_scatter(
                x=curve.values,
                y=over_bound(curve, key),
                customdata=[format_percent(share) for share in over_bound(curve, key)],
                name=f"{label}, over bound",
                mode="lines+markers",
                line={"color": colour, "width": min(width, 3.0)},
                marker={"size": 5},
                showlegend=False,
                hovertemplate="%{customdata} over bound",
                row=2,
                col=1,
            )
    axis = "log" if curve.values[-1] >= WIDE * max(curve.values[0], 1) and curve.values[0] > 0 else "linear"
    for value, text in ((curve.hint, "hint"), (curve.now, "shown")):
        if text == "hint" or value != curve.hint:
            _mark(chart, value, f"{text} {value:,}", axis)
    ticks = _ticks(curve, axis)
    highest = max(share for key in curve.lines for share in over_bound(curve, key))
    shares = share_ticks(highest)
    chart.update_xaxes(type=axis, tickvals=_spread(curve.values))
    chart.update_layout(
        height=430,
        margin={"l": 0, "r": 0, "t": 24, "b": 8},
        xaxis2={"title": curve.symbol},
        yaxis={"type": axis, "tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]},
        yaxis2={
            "range": [0, 1.08 * max(highest, LEAST_SHARE)],
            "tickvals": list(shares),
            "ticktext": list(shares.values()),
            "title": "over bound",
        },
        legend={"orientation": "h", "y": 1.06, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
    )
    return chart


def over_bound(curve: Curve, key: str) -> list[float]:
    """The line `key` over the lower bound, minus 1; 0 where the bound is 0."""
    pairs = zip(curve.lines[key], curve.lines["bound"], strict=True)
    return [value / bound - 1 if bound else 0.0 for value, bound in pairs]


def _mark(chart: go.Figure, value: int, text: str, axis: str) -> None:
    """A vertical line with its name at the top; on a logarithmic axis text is placed by the logarithm."""
    colour = "#BB5599"
    chart.add_vline(x=value, line={"dash": "dash", "width": 1, "color": colour})
    at = math.log10(value) if axis == "log" else value
    font = {"color": colour, "size": 12}
    chart.add_annotation(x=at, y=1, yref="paper", text=text, showarrow=False, font=font, yanchor="bottom")


def _spread(values: tuple[int, ...]) -> list[int]:
    """Some of `values` for the axis, the first and the last among them."""
    step = max(1, -(-len(values) // MOST_TICKS))
    return sorted({*values[::step], values[-1]})


def _ticks(curve: Curve, axis: str) -> list[int]:
    low = max(1, min(min(values) for values in curve.lines.values()))
    high = max(low, *(max(values) for values in curve.lines.values()))
    if axis == "linear":
        return byte_values(high)
    powers = range(low.bit_length() - 1, high.bit_length() + 1)
    return [2**power for power in powers if power % max(1, len(powers) // 6) == 0]
