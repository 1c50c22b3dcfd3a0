"""The arena of a series over commits: demand and what packing loses apart, the changes marked, and what is
allowed; and the same as a small picture. Only what a screen can show is drawn: the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
from memplan_dashboard.charts.markup import escape
from numpy.typing import NDArray

from memplan_engine.history.alarms import ChangeState
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.courses import Course
from memplan_engine.history.history_values import SHORT_HASH
from memplan_engine.history.point_columns import RunColumns
from memplan_engine.plotting.axis_ticks import byte_axis
from memplan_engine.reporters.history.change_words import time_words
from memplan_engine.units import format_bytes, format_signed

Ints = NDArray[np.int64]
Mark = tuple[int, HistoryChange, ChangeState]
"""A change at its place among the points."""
MOST_CORNERS = 1_200
"""Steps that are drawn; of more the highest of each stretch."""
MOST_MARKS = 200
"""Changes that are marked, the last ones."""
MOST_DATES = 7
LABEL_SHARE = 0.075
"""Of the axis: what the words at the foot of a mark take."""
LINE_SHARE = 0.06
"""Of the height: what a name beside the axis takes."""
CALLOUT_WIDTH = 56
"""Letters of a line."""
SHORT = SHORT_HASH // 2 + 1
WIDTH, HEIGHT = 240, 44


@dataclass(frozen=True, slots=True)
class Look:
    """Colours of a theme."""

    arena: str
    demand: str
    edge: str
    packing: str
    alarm: str
    lower: str
    quiet: str
    page: str


LIGHT = Look(
    "#262730", "rgba(68,119,170,0.20)", "#4477AA", "#EE7733", "#B3093C", "#1A7F37", "#8A8F98", "#FFFFFF"
)
DARK = Look(
    "#E6E6E6", "rgba(111,163,219,0.25)", "#6FA3DB", "#F28F56", "#FF7A90", "#56D364", "#9AA0A8", "#0E1117"
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where steps begin, places among the points; the last is where the axis ends. `arena` and `demand` hold
    from each to the next, bytes."""

    begins: Ints
    arena: Ints
    demand: Ints


def steps(course: Course, most: int = MOST_CORNERS) -> Stretch:
    """Where the arena or the demand of `course` changes; of more than `most` steps, the point
    with the highest arena of each of as many stretches."""
    arena, demand = course.arena, course.demand
    moved = (arena[1:] != arena[:-1]) | (demand[1:] != demand[:-1])
    begins = np.append(0, 1 + np.flatnonzero(moved))
    if len(begins) > most:
        edges = np.unique(np.linspace(0, len(begins), most, endpoint=False).astype(np.int64))
        bounds = np.append(edges, len(begins))
        highest = [low + int(arena[begins[low:high]].argmax()) for low, high in pairwise(bounds)]
        at, begins = begins[highest], begins[edges]
    else:
        at = begins
    ends = np.append(begins, len(arena))
    return Stretch(ends, np.append(arena[at], arena[-1]), np.append(demand[at], demand[-1]))


def figure(
    course: Course, runs: RunColumns, look: Look, sentences: Mapping[int, str], begin: int = 0
) -> go.Figure:
    """The chart of `course` from the point at `begin` on; `sentences` say why, by the number of the point
    after a change, where that is known."""
    chart = go.Figure()
    stretch = steps(course)
    watched = course.watched
    count = len(course)
    base = watched.growth.before
    allowed = base.figures.arena + watched.limit.allowed_of(base.figures.arena)
    top = int(max(allowed, int(stretch.arena.max(initial=1)), 1) * 1.15)
    _areas(chart, stretch, look)
    _hover(chart, course, runs, stretch)
    place = places(course, runs)
    _limit(chart, place.get(base.run.commit, 0), allowed, count, look)
    feet = _marks(chart, course, place, look, sentences, begin)
    chart.update_layout(
        annotations=[*feet, *_names(course, allowed, top, look), *_callout(course, place, look, sentences)],
        height=380,
        margin={"l": 0, "r": 130, "t": 8, "b": 8},
        xaxis={"range": [begin, count], "showgrid": False, "zeroline": False, **_dates(course, runs, begin)},
        yaxis={"range": [0, top], "title": None, "zeroline": True, **byte_axis(top)},
        legend={
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 1,
            "xanchor": "right",
            "traceorder": "normal",
        },
        hovermode="closest",
        clickmode="event+select",
        dragmode=False,
    )
    return chart


def _areas(chart: go.Figure, stretch: Stretch, look: Look) -> None:
    common: dict[str, Any] = {"x": stretch.begins, "mode": "lines", "hoverinfo": "skip"}
    line = {"shape": "hv", "width": 1.2, "color": look.edge, "dash": "dash"}
    chart.add_scatter(
        y=stretch.demand, name="demand: bytes live at the peak", line=line, fill="tozeroy",
        fillcolor=look.demand, **common,
    )  # fmt: skip
    chart.add_scatter(
        y=stretch.arena, name="packing loss", line={"shape": "hv", "width": 0}, fill="tonexty",
        fillcolor="rgba(238,119,51,0.18)",
        fillpattern={"shape": "/", "fgcolor": look.packing, "size": 6, "solidity": 0.25},
        **common,
    )  # fmt: skip
    line = {"shape": "hv", "width": 2, "color": look.arena}
    chart.add_scatter(y=stretch.arena, name="arena", line=line, **common)


def _hover(chart: go.Figure, course: Course, runs: RunColumns, stretch: Stretch) -> None:
    """What is said of each step, in its middle: a point at its beginning would take the clicks of a mark."""
    ends = stretch.begins[1:]
    steps = zip(
        *(each[:-1].tolist() for each in (stretch.begins, stretch.arena, stretch.demand)), strict=True
    )
    chart.add_scatter(
        x=(stretch.begins[:-1] + ends) / 2, y=stretch.arena[:-1], mode="markers", showlegend=False,
        marker={"size": 9, "opacity": 0},
        customdata=[
            f"from {escape(runs.commit[run][:SHORT])} of {day_of(runs, run)}<br>"
            f"arena {format_bytes(arena)}, demand {format_bytes(demand)}"
            for begin, arena, demand in steps
            for run in [int(course.run[begin])]
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def day_of(runs: RunColumns, run: int) -> str:
    """The day of the run at a place, UTC; "" where no time is known."""
    return time_words(int(runs.committed_at[run]) or int(runs.recorded_at[run]))


def _dates(course: Course, runs: RunColumns, begin: int) -> dict[str, Any]:
    count = len(course) - begin
    every = max(1, -(-count // MOST_DATES))
    at = list(range(begin, len(course), every))
    return {"tickvals": at, "ticktext": [day_of(runs, int(course.run[each])) for each in at]}


def places(course: Course, runs: RunColumns) -> dict[str, int]:
    """The place of each commit among the points, the last of several."""
    return {runs.commit[run]: place for place, run in enumerate(course.run.tolist())}


def _limit(chart: go.Figure, begin: int, allowed: int, count: int, look: Look) -> None:
    chart.add_scatter(
        x=[begin, count], y=[allowed, allowed], mode="lines", showlegend=False, name="allowed",
        line={"width": 1.5, "color": look.alarm, "dash": "dot"},
        hovertemplate=f"allowed since the level: {format_bytes(allowed)}<extra></extra>",
    )  # fmt: skip


KINDS = {
    "to look at": (ChangeState.TO_LOOK_AT,),
    "within the limit": (ChangeState.WITHIN_LIMIT, ChangeState.BESIDE),
    "lower": (ChangeState.LOWER,),
    "made good since": (ChangeState.MADE_GOOD,),
    "acknowledged": (ChangeState.ACKNOWLEDGED,),
}


def _colours(look: Look) -> dict[ChangeState, tuple[str, str]]:
    """The outline of a mark, and what it is filled with."""
    return {
        ChangeState.TO_LOOK_AT: (look.alarm, look.alarm),
        ChangeState.WITHIN_LIMIT: (look.edge, look.page),
        ChangeState.BESIDE: (look.edge, look.page),
        ChangeState.LOWER: (look.lower, look.lower),
        ChangeState.MADE_GOOD: (look.quiet, look.page),
        ChangeState.ACKNOWLEDGED: (look.quiet, look.page),
    }


def _marks(
    chart: go.Figure,
    course: Course,
    place: dict[str, int],
    look: Look,
    sentences: Mapping[int, str],
    begin: int,
) -> list[dict[str, Any]]:
    """Draw a mark for each change; what stands at the feet of them."""
    colours = _colours(look)
    marked = [
        (place.get(change.after.run.commit, 0), change, state) for change, state in course.watched.changes
    ][-MOST_MARKS:]
    shown = [each for each in marked if each[0] >= begin]
    for name, states in KINDS.items():
        of_kind = [each for each in shown if each[2] in states]
        if of_kind:
            outline, fill = colours[states[0]]
            chart.add_scatter(
                x=[at for at, _, _ in of_kind],
                y=[change.after.figures.arena for _, change, _ in of_kind],
                mode="markers", name=name,
                marker={"size": 11, "color": fill, "line": {"width": 2, "color": outline}},
                customdata=[
                    [change.after.number, mark_words(change, sentences)] for _, change, _ in of_kind
                ],
                hovertemplate="%{customdata[1]}<extra>click: Diff</extra>",
            )  # fmt: skip
    stems: dict[str, list[tuple[int, int]]] = {}
    for at, change, state in shown:
        stems.setdefault(colours[state][0], []).append((at, change.after.figures.arena))
    for colour, several in stems.items():
        chart.add_scatter(
            x=[x for at, _ in several for x in (at, at, None)],
            y=[y for _, high in several for y in (0, high, None)],
            mode="lines", line={"width": 1, "color": colour, "dash": "dot"}, hoverinfo="skip",
            showlegend=False,
        )  # fmt: skip
    return _feet(shown, colours, len(course), begin)


def _feet(
    shown: list[Mark], colours: dict[ChangeState, tuple[str, str]], count: int, begin: int
) -> list[dict[str, Any]]:
    """The commit and the bytes at the foot of marks, from the last one back, where there is room."""
    free, wide = float(count), (count - begin) * LABEL_SHARE
    words = []
    for at, change, state in reversed(shown):
        left = at if at + wide <= count else at - wide
        if left + wide <= free:
            free = left
            inside = left == at
            words.append(
                {
                    "x": at, "y": 0, "showarrow": False, "yanchor": "bottom", "align": "left",
                    "text": f"{escape(change.after.run.commit[:SHORT])}<br>{format_signed(change.arena)}",
                    "xshift": 3 if inside else -3, "xanchor": "left" if inside else "right",
                    "font": {"size": 11, "color": colours[state][0]},
                }
            )  # fmt: skip
    return words


def _callout(
    course: Course, place: dict[str, int], look: Look, sentences: Mapping[int, str]
) -> list[dict[str, Any]]:
    """What is to be looked at, beside the mark of the last such change, once it is known why."""
    steps = course.watched.open_steps
    if not steps or steps[-1].after.number not in sentences:
        return []
    change = steps[-1]
    at = place.get(change.after.run.commit, 0)
    is_late = at > len(course) / 2
    return [
        {
            "x": at, "y": change.after.figures.arena, "ax": -24 if is_late else 24, "ay": 44,
            "xanchor": "right" if is_late else "left", "yanchor": "middle", "align": "left",
            "text": mark_words(change, sentences, CALLOUT_WIDTH), "font": {"size": 12, "color": look.arena},
            "bgcolor": look.page, "bordercolor": look.alarm, "borderpad": 6, "borderwidth": 1,
            "arrowcolor": look.alarm, "arrowwidth": 1, "arrowhead": 0, "standoff": 6,
        }
    ]  # fmt: skip


def mark_words(change: HistoryChange, sentences: Mapping[int, str], width: int = 70) -> str:
    """What is said of a mark: the commit, the bytes, and the sentence that says why where it is known."""
    run = change.after.run
    head = f"<b>{escape(run.label)}</b>: arena {format_signed(change.arena)}"
    why = sentences.get(change.after.number, "")
    return f"{head}<br>{_wrapped(escape(why), width)}" if why else head


def _wrapped(text: str, width: int) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)


def _names(course: Course, allowed: int, top: int, look: Look) -> list[dict[str, Any]]:
    """What the edges are called, where they end, apart from each other."""
    figures = course.watched.latest.figures
    named = [
        (figures.arena, f"arena {format_bytes(figures.arena)}", look.arena),
        (figures.demand, f"demand {format_bytes(figures.demand)}", look.edge),
        (allowed, f"limit {format_bytes(allowed)}", look.alarm),
    ]
    named = named[:2] if allowed == figures.arena else named
    free, words = float(top), []
    for nbytes, text, colour in sorted(named, key=lambda each: -each[0]):
        at = min(float(nbytes), free)
        free = at - LINE_SHARE * top
        words.append(
            {
                "x": 1, "xref": "paper", "y": max(at, 0.0), "text": text, "showarrow": False,
                "xanchor": "left", "yanchor": "middle", "xshift": 6,
                "font": {"color": colour, "size": 12},
            }
        )  # fmt: skip
    return words


def small(values: Ints, colour: str) -> str:
    """A picture of `values` from their least to their most, as SVG: a line of steps."""
    begins = np.append(0, 1 + np.flatnonzero(values[1:] != values[:-1]))
    if len(begins) > WIDTH:
        begins = begins[np.unique(np.linspace(0, len(begins) - 1, WIDTH).astype(np.int64))]
    heights = values[begins]
    least, most = int(heights.min()), int(heights.max())
    ends = np.append(begins[1:], len(values)) * WIDTH / len(values)
    tall = (HEIGHT - 6) * (heights - least) / ((most - least) or 1)
    path = " ".join(
        f"{'ML'[bool(number)]}{begin:.1f},{HEIGHT - 3 - high:.1f} H{end:.1f}"
        for number, (begin, end, high) in enumerate(
            zip((begins * WIDTH / len(values)).tolist(), ends.tolist(), tall.tolist(), strict=True)
        )
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none">'
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" '
        'vector-effect="non-scaling-stroke"/></svg>'
    )
