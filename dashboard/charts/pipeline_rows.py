"""The actions of one rank of a pipeline over its ops of a step, and its live bytes below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from memplan_dashboard.charts.rank_areas import starts_of, thinned

from memplan_engine.devices.rank_timeline import RankTimeline
from memplan_engine.plotting.axis_ticks import byte_axis, count_axis
from memplan_engine.recordings.rank_run import PipelineAction
from memplan_engine.units import format_bytes

COLOURS = {"F": "#4477AA", "B": "#B8541A", "I": "#B8541A", "W": "#2A7F74"}
NAMES = {"F": "forward", "B": "backward", "I": "backward, inputs", "W": "backward, weights"}


def figure(line: RankTimeline, actions: Sequence[PipelineAction], top: int) -> go.Figure:
    """Bytes up to `top`, so that ranks have one scale."""
    chart = go.Figure()
    several = len({each.stage for each in actions}) > 1
    for kind, colour in COLOURS.items():
        chosen = [each for each in actions if each.kind == kind]
        if not chosen:
            continue
        chart.add_bar(
            name=NAMES[kind],
            base=[each.first for each in chosen],
            x=[max(each.end - each.first, 1) for each in chosen],
            y=["actions"] * len(chosen),
            orientation="h",
            marker={"color": colour, "line": {"color": "white", "width": 1}},
            # As torch's schedules write it, "3F0", where a rank has several stages.
            text=[f"{each.stage if several else ''}{kind}{each.micro_batch}" for each in chosen],
            textposition="inside",
            textangle=0,
            insidetextanchor="middle",
            insidetextfont={"color": "white"},
            customdata=[[each.stage, each.micro_batch, each.first, each.end - 1] for each in chosen],
            hovertemplate=NAMES[kind] + " of micro-batch %{customdata[1]}, stage %{customdata[0]}, ops "
            "%{customdata[2]} to %{customdata[3]}<extra></extra>",
            yaxis="y2",
        )
    starts = starts_of(line.end - line.first)
    live = thinned(np.sum([*line.live.values()], axis=0), starts)
    live = np.append(live, live[-1])
    chart.add_scatter(
        x=np.append(line.first + starts, line.end),
        y=live,
        name="live",
        mode="lines",
        fill="tozeroy",
        line={"shape": "hv", "width": 1, "color": "#4477AA"},
        customdata=[format_bytes(int(value)) for value in live],
        hovertemplate="%{customdata}",
        showlegend=False,
    )
    chart.update_layout(
        height=190,
        barmode="overlay",
        margin={"l": 0, "r": 0, "t": 4, "b": 4},
        xaxis={**count_axis(line.end, "", 8), "range": [line.first, line.end]},
        yaxis={"domain": [0, 0.66], "range": [0, top * 1.05], "title": None, **byte_axis(top)},
        yaxis2={"domain": [0.72, 1], "showticklabels": False, "title": None, "anchor": "x"},
        showlegend=False,
    )
    return chart
