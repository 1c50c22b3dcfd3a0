"""What an allocator held of the device over time, above what was live; what lies between was unused. Of a
simulated one also which blocks were active, and the fragmentation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go

from memplan_engine.allocator.simulation import AllocatorRun
from memplan_engine.plotting.axis_ticks import byte_axis, count_axis
from memplan_engine.recordings.cost import OverTime, thinned
from memplan_engine.units import format_bytes

MOST_POINTS = 2_000
MOST_FAILURES = 20
LIVE, RESERVED, FAILED = "#4477AA", "#EE7733", "#CC3311"
ACTIVE, FRAGMENTATION, CHOSEN = "#228833", "#AA3377", "#808080"


@dataclass(frozen=True, slots=True)
class Curve:
    """From each of `steps` to the next the most `live` and `reserved` bytes; `end` is the last step;
    `failures` are steps out of memory, the first MOST_FAILURES. Of a simulated allocator also the most
    `active` bytes, of blocks in use, and `fragmentation`, reserved and not active; else there are none."""

    steps: tuple[int, ...]
    live: tuple[int, ...]
    reserved: tuple[int, ...]
    end: int
    failures: tuple[int, ...]
    active: tuple[int, ...] = ()
    fragmentation: tuple[int, ...] = ()


def data(over: OverTime, most: int = MOST_POINTS) -> Curve:
    """The curve, thinned to `most` points."""
    steps, live, reserved = (tuple(column.tolist()) for column in thinned(over, most))
    return Curve(steps, live, reserved, len(over.live), over.failures[:MOST_FAILURES])


def simulated(run: AllocatorRun, most: int = MOST_POINTS) -> Curve:
    """The curve of a simulated allocator, thinned to `most` points."""
    failures = tuple(failure.event + 1 for failure in run.failures)
    curve = data(OverTime(run.requested, run.reserved, failures, True), most)
    active, fragmentation = (
        tuple(np.maximum.reduceat(column, curve.steps).tolist()) for column in (run.active, run.fragmentation)
    )
    return replace(curve, active=active, fragmentation=fragmentation)


def figure(curve: Curve, chosen: int | None = None) -> go.Figure:
    """A line of steps each, the stretch below live and reserved filled; a vertical line for each failure, and
    for a step that is `chosen`, where a click can choose one."""
    chart = go.Figure()
    steps = (*curve.steps, curve.end)
    for name, values, colour, dash, fill, tint in (
        ("live", curve.live, LIVE, "solid", "tozeroy", "rgba(68, 119, 170, 0.35)"),
        ("reserved", curve.reserved, RESERVED, "dash", "tonexty", "rgba(238, 119, 51, 0.2)"),
        ("active", curve.active, ACTIVE, "dot", "none", None),
        ("fragmentation", curve.fragmentation, FRAGMENTATION, "solid", "none", None),
    ):
        if not values:
            continue
        chart.add_scatter(
            x=steps,
            y=(*values, *values[-1:]),
            name=name,
            # Only points can be clicked: none that is seen.
            mode="lines" if chosen is None else "lines+markers",
            marker={"opacity": 0},
            selected={"marker": {"opacity": 0}},
            unselected={"marker": {"opacity": 0}},
            line={"shape": "hv", "color": colour, "dash": dash, "width": 2},
            fill=fill,
            fillcolor=tint,
            customdata=[format_bytes(value) for value in (*values, *values[-1:])],
            hovertemplate="%{customdata}",
        )
    for step in curve.failures:
        chart.add_vline(x=step, line={"color": FAILED, "dash": "dot", "width": 1.5})
    if chosen is not None:
        chart.add_vline(x=chosen, line={"color": CHOSEN, "width": 1.5})
    chart.update_layout(
        height=240,
        margin={"l": 0, "r": 12, "t": 4, "b": 4},
        xaxis=count_axis(curve.end, "step", 8),
        yaxis={"rangemode": "tozero", **byte_axis(max(curve.reserved, default=0))},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
    )
    return chart
