"""Live bytes during each op of a run: predicted, and measured at two levels, on one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from memplan_dashboard.charts.markup import escape

from memplan_engine.formats.memplan_json.run_format import RunFile, peak_of
from memplan_engine.plotting.axis_ticks import byte_axis, count_axis
from memplan_engine.reporters.run_tables import CURVES, signed
from memplan_engine.units import format_bytes

MOST_POINTS = 4_000
HEADROOM = 1.12
"""For the difference, above the highest peak."""
STYLES: dict[str, dict[str, object]] = {
    "predicted": {"color": "#77AADD", "width": 5},
    "dispatch": {"color": "#EE7733", "width": 1.5},
    "allocator": {"color": "#CC5599", "width": 1.5, "dash": "dash"},
}
SYMBOLS = {"predicted": "circle", "dispatch": "x-thin-open", "allocator": "diamond"}


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: `bytes` from each of `steps` on, the op there; where its peak is, and how far that lies beside
    the predicted one (None without a prediction)."""

    name: str
    steps: tuple[int, ...]
    bytes: tuple[int, ...]
    ops: tuple[str, ...]
    peak_step: int
    peak_bytes: int
    difference: int | None


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves that are known, and how many ops there are."""

    lines: tuple[Line, ...]
    ops: int


def data(run: RunFile) -> Curves:
    """The curves, thinned to the most of each stretch where there are more ops than MOST_POINTS."""
    every = -(-len(run.ops) // MOST_POINTS) or 1
    base = peak_of(run.predicted)[0] if run.predicted else None
    lines = []
    for name, curve in run.curves.items():
        steps = _tops(curve, every)
        top, place = peak_of(curve)
        lines.append(
            Line(
                name,
                steps,
                tuple(curve[step] for step in steps),
                tuple(f"{run.ops[step]} ({run.kinds[step]})" for step in steps),
                place,
                top,
                None if base is None or name == "predicted" else top - base,
            )
        )
    return Curves(tuple(lines), len(run.ops))


def _tops(curve: tuple[int, ...], every: int) -> tuple[int, ...]:
    """The step of the most bytes in each stretch of `every` steps."""
    if every == 1:
        return tuple(range(len(curve)))
    values = np.array(curve, dtype=np.int64)
    begins = range(0, len(values), every)
    return tuple(begin + int(values[begin : begin + every].argmax()) for begin in begins)


def figure(curves: Curves) -> go.Figure:
    """Lines of steps over the ops, a marker at each peak with the difference in bytes."""
    chart = go.Figure()
    for line in curves.lines:
        said = [format_bytes(value) + f" ({value:,} B)" for value in line.bytes]
        first = line is curves.lines[0]
        chart.add_scatter(
            x=(*line.steps, curves.ops),
            y=(*line.bytes, *line.bytes[-1:]),
            name=CURVES[line.name],
            legendgroup=line.name,
            mode="lines",
            opacity=0.6 if line.name == "predicted" else 1.0,
            line={"shape": "hv", **STYLES[line.name]},
            customdata=[
                (escape(op), text)
                for op, text in zip((*line.ops, *line.ops[-1:]), (*said, *said[-1:]), strict=True)
            ],
            hovertemplate="%{customdata[1]}" + ("<br><b>%{customdata[0]}</b>" if first else ""),
        )
    for line in curves.lines:
        _peak(chart, line, curves.ops)
    top = max((line.peak_bytes for line in curves.lines), default=0)
    chart.update_layout(
        height=380,
        margin={"l": 0, "r": 12, "t": 4, "b": 4},
        xaxis=count_axis(curves.ops, "op", 9),
        yaxis={"range": [0, HEADROOM * max(top, 1)], **byte_axis(top)},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
    )
    return chart


def _peak(chart: go.Figure, line: Line, ops: int) -> None:
    """A marker at the middle of the op at which `line` is highest; the difference beside it, if any."""
    if line.peak_step < 0:
        return
    style = STYLES[line.name]
    told = "" if not line.difference else signed(line.difference)
    right = line.peak_step > ops / 2
    chart.add_scatter(
        x=[line.peak_step + 0.5],
        y=[line.peak_bytes],
        mode="markers+text",
        marker={
            "symbol": SYMBOLS[line.name],
            "size": 11,
            "color": style["color"],
            "line": {"width": 2, "color": style["color"]},
        },
        text=[told],
        textposition="top left" if right else "top right",
        cliponaxis=False,
        showlegend=False,
        legendgroup=line.name,
        name=f"peak, {CURVES[line.name]}",
        hoverinfo="skip",
    )
