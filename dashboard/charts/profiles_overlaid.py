"""Two profiles of live bytes in one chart, with both peaks: base and head on the head's steps, or a graph
before and after rewrites."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go

from memplan_engine.diffing.culprits import Explanation
from memplan_engine.diffing.regression import Diff
from memplan_engine.diffing.rows import profile_difference
from memplan_engine.plan import Plan
from memplan_engine.plotting.axis_ticks import byte_axis, count_axis
from memplan_engine.profile import Load, load_of
from memplan_engine.units import format_bytes

MOST_POINTS = 2_000
BASE, HEAD = "#8A8A8A", "#4477AA"
GREW, MORE = "#EE7733", "rgba(238, 119, 51, 0.45)"
LIMIT = "#CC3311"
LIMIT_NEAR = 1.3
"""How many times the highest bytes a limit may be to be drawn."""
NEAR_STEPS, NEAR_BYTES = 0.25, 0.1
"""The part of all steps and of the most bytes from which on two peaks have room for a name each."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A peak that is pointed at: its step of the head, its bytes, what it is called, and its colour."""

    step: int
    nbytes: int
    label: str
    color: str


@dataclass(frozen=True, slots=True)
class Profiles:
    """From each of `steps` of the head to the next the most bytes that `base` and `head` hold; `end` is the
    head's last step. `marks` are both peaks, one mark where they are one point, and another one that grew.
    `names` are what both are called, `axis` what the steps are those of; `both` is the step at which the
    first of them ends.
    """

    steps: tuple[int, ...]
    base: tuple[int, ...]
    head: tuple[int, ...]
    end: int
    marks: tuple[Mark, ...]
    names: tuple[str, str] = ("base", "head")
    axis: str = "step of head"
    both: int | None = None


def before_and_after(before: Plan, after: Plan) -> Profiles:
    """The live bytes of a graph as it was and as it is after rewrites, each over its own steps."""
    loads = [load_of(plan.problem) for plan in (before, after)]
    end = max(plan.problem.steps for plan in (before, after))
    width = max(1, -(-end // MOST_POINTS))
    steps = tuple(range(0, end, width))
    columns = [_most_in(load, steps, width) for load in loads]
    # Words beside a peak would lie on the many others of a model with layers.
    names = [
        f"{name}, peak {format_bytes(load.peak)}"
        for load, name in zip(loads, ("before", "after"), strict=True)
    ]
    marks = [
        Mark(load.peak_step, load.peak, "", colour) for load, colour in zip(loads, (BASE, HEAD), strict=True)
    ]
    both = min(plan.problem.steps for plan in (before, after))
    return Profiles(steps, columns[0], columns[1], end, tuple(marks), (names[0], names[1]), "step", both)


def _most_in(load: Load, steps: tuple[int, ...], width: int) -> tuple[int, ...]:
    """The most live bytes within `width` steps from each of `steps` on; 0 behind the last one."""
    bounds = load.sections.bounds
    live = np.repeat(load.live, np.diff(bounds))
    whole = np.zeros(len(steps) * width, dtype=np.int64)
    first = int(bounds[0]) if len(bounds) else 0
    whole[first : first + len(live)] = live
    return tuple(whole.reshape(-1, width).max(axis=1).tolist()) if steps else ()


def data(diff: Diff, found: Explanation) -> Profiles:
    """Both profiles, thinned to MOST_POINTS; a peak is in whatever stretch it falls into."""
    beside = profile_difference(diff)
    begin, end = beside.bounds[:-1], int(beside.bounds[-1])
    first = np.arange(0, len(begin), max(1, -(-len(begin) // MOST_POINTS)))
    thin = [
        np.maximum.reduceat(column, first) if len(begin) else column for column in (beside.base, beside.head)
    ]
    return Profiles(
        tuple(begin[first].tolist()),
        tuple(thin[0].tolist()),
        tuple(thin[1].tolist()),
        end,
        tuple(_marks(diff, found)),
    )


def _marks(diff: Diff, found: Explanation) -> list[Mark]:
    head, base = diff.head_load, diff.base_load
    at = diff.base_moment.head_step
    before, after = format_bytes(base.peak), format_bytes(head.peak)
    marks = [
        Mark(at, base.peak, f"base's peak {before}", BASE),
        Mark(head.peak_step, head.peak, f"head's peak {after}", HEAD),
    ]
    near = abs(at - head.peak_step) < NEAR_STEPS * max(diff.head.problem.steps, 1)
    if (at, base.peak) == (head.peak_step, head.peak):
        marks = [Mark(at, head.peak, f"both peak at {after}", HEAD)]
    elif near and abs(base.peak - head.peak) < NEAR_BYTES * max(base.peak, head.peak):
        marks[0] = replace(marks[0], label="")
        marks[1] = replace(marks[1], label=f"head's peak {after}, base's {before}")
    if found.second:
        grown = found.second.moment
        marks.append(
            Mark(grown.head_step, grown.head_bytes, f"this grew, too: {format_bytes(grown.head_bytes)}", GREW)
        )
    return marks


def figure(profiles: Profiles, limit: int | None = None) -> go.Figure:
    """Two lines of steps; orange where the head holds more, while there are both. A `limit` in bytes is a
    dotted line, where it is near."""
    chart = go.Figure()
    steps = (*profiles.steps, profiles.end)
    base, head = ((*values, *values[-1:]) for values in (profiles.base, profiles.head))
    quiet = {"mode": "lines", "line": {"shape": "hv", "width": 0}, "showlegend": False, "hoverinfo": "skip"}
    chart.add_scatter(x=steps, y=base, **quiet)
    until = profiles.end + 1 if profiles.both is None else profiles.both
    most = [
        max(one, other) if step < until else one for step, one, other in zip(steps, base, head, strict=True)
    ]
    chart.add_scatter(x=steps, y=most, fill="tonexty", fillcolor=MORE, **quiet)
    first, second = profiles.names
    for name, values, colour, dash in ((first, base, BASE, "dash"), (second, head, HEAD, "solid")):
        chart.add_scatter(
            x=steps,
            y=values,
            name=name,
            mode="lines",
            line={"shape": "hv", "color": colour, "dash": dash, "width": 2},
            customdata=[format_bytes(value) for value in values],
            hovertemplate="%{customdata}",
        )
    _point_at(chart, profiles)
    largest = max((*profiles.base, *profiles.head), default=0)
    if limit is not None and 0 <= limit <= LIMIT_NEAR * largest:
        chart.add_scatter(
            x=(0, profiles.end),
            y=(limit, limit),
            name=f"left for the arena: {format_bytes(limit)}",
            mode="lines",
            line={"color": LIMIT, "width": 2, "dash": "dot"},
            hoverinfo="skip",
        )
        largest = max(largest, limit)
    chart.update_layout(
        height=250,
        margin={"l": 0, "r": 12, "t": 4, "b": 4},
        xaxis=count_axis(profiles.end, profiles.axis, 8),
        yaxis={"range": [0, 1.12 * largest or 1], **byte_axis(largest)},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
    )
    return chart


def _point_at(chart: go.Figure, profiles: Profiles) -> None:
    """A ring on each mark, its words beside it on the side that has room."""
    marks = profiles.marks
    chart.add_scatter(
        x=[mark.step + 0.5 for mark in marks],
        y=[mark.nbytes for mark in marks],
        mode="markers+text",
        marker={
            "symbol": "circle-open",
            "size": 9,
            "color": [mark.color for mark in marks],
            "line": {"width": 2},
        },
        text=[mark.label for mark in marks],
        textposition=[f"top {'left' if 2 * mark.step > profiles.end else 'right'}" for mark in marks],
        cliponaxis=False,
        showlegend=False,
        hoverinfo="skip",
    )
