"""Live bytes over the steps of a training step, by what they are: forward, saved for backward, …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from memplan_engine import Problem
from memplan_engine.plotting.axis_ticks import byte_axis
from memplan_engine.profile import live_bytes, load_of
from memplan_engine.units import format_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Areas:
    """`live[label]` (bytes, int64) for the sections that begin at the steps `start`; the last ends at
    `end`. In the order in which they are stacked."""

    start: NDArray[np.int64]
    end: int
    live: dict[str, NDArray[np.int64]]
    colours: dict[str, str]


def data(
    problem: Problem, kind: NDArray[np.uint8], labels: Sequence[tuple[str, int]], colours: Sequence[str]
) -> Areas:
    """The live bytes of each class, exact at every step. `kind` is the class of each buffer, `labels` names
    the classes in the order in which they are stacked, `colours` has one for each."""
    load = load_of(problem)
    pieces, sections = load.pieces, load.sections
    size = pieces.high - pieces.low
    live = {
        label: live_bytes(sections, np.where(kind[pieces.owner] == place, size, 0)) for label, place in labels
    }
    chosen = {label: colours[place] for label, place in labels}
    return Areas(sections.bounds[:-1], problem.steps, live, chosen)


def figure(areas: Areas) -> go.Figure:
    """Stacked steps, the saved activations at the bottom."""
    chart = go.Figure()
    steps = np.append(areas.start, areas.end)
    for label, live in areas.live.items():
        values = np.append(live, live[-1:] if len(live) else 0)
        chart.add_scatter(
            x=steps,
            y=values,
            name=label,
            mode="lines",
            line={"shape": "hv", "width": 0.5, "color": areas.colours[label]},
            fillcolor=areas.colours[label],
            stackgroup="live",
            customdata=[format_bytes(int(value)) for value in values],
            hovertemplate="%{customdata}",
        )
    top = int(np.sum([*areas.live.values()], axis=0).max(initial=0))
    chart.update_layout(
        height=260,
        margin={"l": 0, "r": 0, "t": 8, "b": 8},
        xaxis={"title": "step", "range": [0, areas.end]},
        yaxis={"title": None, **byte_axis(top)},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
    )
    return chart
