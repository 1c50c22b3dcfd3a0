"""What is live by call stack: the outermost call on top, each as wide as its bytes; a click zooms in."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go
from memplan_dashboard.charts.markup import escape

from memplan_engine.callers import line_label, stands_in_library
from memplan_engine.recordings.flame import ROOT, Call
from memplan_engine.units import exact, format_bytes, format_percent

LEVELS = 9
"""How many calls deep is shown at once; a click goes on from there."""
TOTAL, OWN, LIBRARY = "#6B6B6B", "#4477AA", "#5A6B75"
"""All of it, calls of the user's own code, and those of PyTorch and below; white text is legible on each."""


@dataclass(frozen=True, slots=True)
class Box:
    """A call: `parent` is the label's place in the list, ROOT for the box of all that is live. Bytes. `where`
    and `told` are shown when it is pointed at."""

    label: str
    parent: int
    nbytes: int
    where: str
    told: str
    colour: str


def data(calls: tuple[Call, ...], live: int) -> list[Box]:
    """The boxes: all that is live first, then the calls in their order, without the outermost ones that all
    of them have in common but for the last."""
    shared = _shared(calls)
    outer = f"{shared:,} outer call{'s' * (shared != 1)}"
    where = f"all that is live, within {outer} that all share" if shared else "all that is live"
    boxes = [Box(f"live {format_bytes(live)}", ROOT, live, where, exact(live), TOTAL)]
    for call in calls[shared:]:
        frame, share = call.frame, format_percent(call.nbytes / live) if live else "none"
        told = f"{exact(call.nbytes)}, {share}, {call.count:,} buffer{'s' * (call.count != 1)}"
        colour = LIBRARY if stands_in_library(frame) else OWN
        parent = max(call.parent - shared, ROOT) + 1
        boxes.append(Box(line_label(frame), parent, call.nbytes, str(frame), told, colour))
    return boxes


def _shared(calls: tuple[Call, ...]) -> int:
    """How many of the outermost calls hold all that the next one holds, and nothing else does."""
    length = 0
    for place, call in enumerate(calls):
        if call.parent != place - 1 or call.nbytes != calls[0].nbytes:
            break
        length = place
    return length


def figure(boxes: list[Box]) -> go.Figure:
    """An icicle from the outermost call downwards."""
    chart = go.Figure(
        go.Icicle(
            ids=[str(place) for place in range(len(boxes))],
            labels=[escape(box.label) for box in boxes],
            parents=["" if box.parent == ROOT else str(box.parent) for box in boxes],
            values=[box.nbytes for box in boxes],
            customdata=[[escape(box.where), box.told] for box in boxes],
            branchvalues="total",
            maxdepth=LEVELS,
            leaf={"opacity": 1},
            sort=False,
            tiling={"orientation": "v", "pad": 1},
            marker={"colors": [box.colour for box in boxes], "line": {"width": 0}},
            textfont={"color": "#FFFFFF"},
            texttemplate="%{label}",
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
            pathbar={"side": "top", "thickness": 24},
            hoverlabel={"bgcolor": "#11141A", "font": {"color": "#FFFFFF"}, "align": "left"},
        )
    )
    chart.update_layout(
        height=318, margin={"l": 0, "r": 0, "t": 28, "b": 0}, uniformtext={"minsize": 11, "mode": "hide"}
    )
    return chart
