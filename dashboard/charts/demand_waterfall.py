"""Why the arena changed, as a waterfall: causes → Δdemand, and with Δpacking loss → Δarena; where ops hold
anything beside it, with Δworkspace → Δtotal."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from memplan_engine.diffing.regression import Diff
from memplan_engine.reporters.diff_words import reasons
from memplan_engine.units import format_signed

MORE, FEWER, TOTAL = "#EE7733", "#4477AA", "#8A8A8A"
BESIDE = 0.24
"""The part of the bars' range that the bytes beside a bar take in a third of a window 1,440 pixels wide."""


@dataclass(frozen=True, slots=True)
class Step:
    """A bar of `nbytes` (signed); a total stands on zero, all others on where the last one ended."""

    label: str
    nbytes: int
    is_total: bool = False


def data(diff: Diff) -> list[Step]:
    """The causes, their sum, the packing loss, and the sum of both; the same of the workspace: exact."""
    workspace = [Step("Δ workspace", diff.workspace_delta), Step("Δ total", diff.total_delta, True)]
    return [
        *(Step(label, nbytes) for label, nbytes in reasons(diff)),
        Step("Δ demand", diff.demand_delta, True),
        Step("Δ packing loss", diff.packing_delta),
        Step("Δ arena", diff.arena_delta, True),
        *(workspace if diff.has_workspaces else []),
    ]


def figure(steps: list[Step]) -> go.Figure:
    """Horizontal bars, each with its bytes and sign beside it."""
    ends, end = [0], 0
    for step in steps:
        end = step.nbytes if step.is_total else end + step.nbytes
        ends.append(end)
    low, high = min(ends), max(ends)
    room = BESIDE * ((high - low) or 1)
    # What falls has its bytes on the left.
    falls = [after for after, step in zip(ends[1:], steps, strict=True) if step.nbytes < 0]
    left = room if low < 0 or min(falls, default=high) < low + room else 0
    chart = go.Figure(
        go.Waterfall(
            orientation="h",
            measure=["total" if step.is_total else "relative" for step in steps],
            x=[step.nbytes for step in steps],
            y=[f"<b>{step.label}</b>" if step.is_total else step.label for step in steps],
            text=[format_signed(step.nbytes) for step in steps],
            textposition="outside",
            cliponaxis=False,
            customdata=[format_signed(step.nbytes) for step in steps],
            hovertemplate="%{y}: %{customdata}<extra></extra>",
            increasing={"marker": {"color": MORE}},
            decreasing={"marker": {"color": FEWER}},
            totals={"marker": {"color": TOTAL}},
            connector={"line": {"color": "rgba(128,128,128,0.6)", "width": 1}},
        )
    )
    chart.update_layout(
        height=28 + 30 * len(steps),
        margin={"l": 0, "r": 8, "t": 4, "b": 4},
        xaxis={
            "range": [low - left, high + room],
            "showticklabels": False,
            "showgrid": False,
            "zeroline": True,
            "zerolinecolor": "rgba(128,128,128,0.9)",
        },
        yaxis={"autorange": "reversed", "title": None},
        showlegend=False,
        bargap=0.3,
    )
    return chart
