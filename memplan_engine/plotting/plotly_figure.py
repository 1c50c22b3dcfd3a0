"""A plan as a Plotly figure, for notebooks: bars from offset to offset + size, the profile below."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.analysis.claims import arena_name, over_bound
from memplan_engine.errors import MissingDependencyError
from memplan_engine.plan import Plan
from memplan_engine.plotting.axis_ticks import byte_ticks
from memplan_engine.plotting.bands import BAND_ROW, BAR, NARROWEST, Band, bands_of, rows_of
from memplan_engine.plotting.figure_style import FigureStyle, text_width
from memplan_engine.plotting.png_figure import paint, png_bytes
from memplan_engine.plotting.scene import coarse, make_scene
from memplan_engine.plotting.strip_lines import StripLine, strip_lines, top_of_strip
from memplan_engine.problem import Ints, cut
from memplan_engine.profile import Profile, make_profile
from memplan_engine.units import format_bytes

MOST_BARS = 20_000
"""Beyond, the rectangles are one picture without words under the pointer: a browser draws no more bars."""
MOST_POINTS = 4_000
MOST_LETTERS = 80
HEADROOM = 1.03
PICTURE = (1600, 1000)
"""Pixels, about, of that picture."""
LIFT = 8
"""Between the rectangles and the bands above them, pixels: the name of the arena reaches so far up."""
WIDTH = 600
"""Pixels that the plot has at least, in most notebooks."""


def plotly_figure(plan: Plan, colour_by: str | None = None, theme: str = "light") -> Any:
    """See `Plan.figure`."""
    style = FigureStyle(colour_by=colour_by, theme=theme)
    try:
        from plotly.subplots import make_subplots
    except ImportError:
        raise MissingDependencyError("plotly", "figures", "Plan.figure()") from None
    chart = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.8, 0.2], vertical_spacing=0.05)
    if len(plan.problem) <= MOST_BARS:
        _add_bars(chart, plan, style)
    else:
        _add_picture(chart, plan, style)
    profile = make_profile(plan.problem, plan.offsets)
    lines = strip_lines(plan, profile, MOST_POINTS)
    _add_profile(chart, profile, lines, style)
    _add_levels(chart, plan, profile, style)
    bands = bands_of(plan.problem)
    _add_bands(chart, bands, plan.problem.steps, style)
    facts = f"{plan.strategy} · arena {format_bytes(plan.arena_bytes)} · {over_bound(plan)}"
    colours = style.colours
    chart.update_layout(
        template="plotly_dark" if theme == "dark" else "plotly_white",
        title={
            "text": f"{_plain(plan.problem.name)}<br><sup>{_plain(facts)}</sup>",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 16},
        },
        paper_bgcolor=colours.background,
        plot_bgcolor=colours.background,
        barmode="overlay",
        bargap=0,
        hovermode="closest",
        height=640,
        margin={"t": 70 + BAND_ROW * rows_of(bands), "r": 20},
    )
    steps, top = max(1, plan.problem.steps), max(1, plan.arena_bytes)
    deep = top_of_strip(plan, profile, lines)
    chart.update_xaxes(range=[0, steps], row=1, col=1)
    chart.update_xaxes(range=[0, steps], title="steps", row=2, col=1)
    for row, high, shown, most in ((1, HEADROOM * top, top, 8), (2, deep, deep, 3)):
        ticks = byte_ticks(shown, most)
        values, words = [value for value, _ in ticks], [label for _, label in ticks]
        chart.update_yaxes(range=[0, high], tickvals=values, ticktext=words, row=row, col=1)
    return chart


def _plain(text: str) -> str:
    """`text` as Plotly shows it letter by letter: it takes tags and entities for its own."""
    shown = text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")


def _add_bars(chart: Any, plan: Plan, style: FigureStyle) -> None:
    """A trace a colour; a bar a piece."""
    problem, pieces = plan.problem, cut(plan.problem)
    colouring, palette = style.colouring(problem)
    index, low = colouring.index[pieces.owner], plan.offsets[pieces.owner] + pieces.low
    names = [_plain(name) for name in buffer_names(problem)]
    for label, colour in colouring.legend:
        own = np.flatnonzero(index == colour)
        customdata = [
            [names[owner], format_bytes(size), format_bytes(offset), end]
            for owner, size, offset, end in zip(
                pieces.owner[own].tolist(),
                (pieces.high - pieces.low)[own].tolist(),
                low[own].tolist(),
                pieces.end[own].tolist(),
                strict=True,
            )
        ]
        chart.add_bar(
            x=pieces.start[own],
            width=(pieces.end - pieces.start)[own],
            offset=0,
            base=low[own],
            y=(pieces.high - pieces.low)[own],
            name=_plain(label),
            marker={"color": palette[colour], "line": {"width": 0.5, "color": style.colours.background}},
            customdata=customdata,
            hovertemplate="%{customdata[0]}<br>%{customdata[1]} at offset %{customdata[2]}"
            "<br>live [%{x}, %{customdata[3]})<extra></extra>",
            row=1,
            col=1,
        )


def _add_picture(chart: Any, plan: Plan, style: FigureStyle) -> None:
    """The rectangles as pixels, where there are too many for bars."""
    scene = make_scene(plan, replace(style, width=PICTURE[0], height=PICTURE[1]))
    data = b64encode(png_bytes(paint(scene.rects, scene.plot, 1.0))).decode()
    chart.add_layout_image(
        source=f"data:image/png;base64,{data}",
        xref="x",
        yref="y",
        x=0,
        y=HEADROOM * plan.arena_bytes,
        sizex=plan.problem.steps,
        sizey=HEADROOM * plan.arena_bytes,
        sizing="stretch",
        layer="above",
        row=1,
        col=1,
    )


def _add_profile(chart: Any, profile: Profile, lines: Sequence[StripLine], style: FigureStyle) -> None:
    edges, live, high = coarse(profile, MOST_POINTS)
    colours = style.colours
    for name, values, colour in (("high water", high, colours.holes), ("live", live, colours.live)):
        stroke = {"width": 0.5, "color": colour}
        _add_curve(chart, name, edges, values, stroke, fill="tozeroy", fillcolor=colour)
    for line in lines:
        dash = ",".join(f"{length}px" for length in line.dash) or "solid"
        stroke = {"width": 1.5, "color": style.of_theme(line.colours), "dash": dash}
        _add_curve(chart, _plain(line.label), np.append(line.start, edges[-1]), line.nbytes, stroke)


def _add_curve(chart: Any, name: str, edges: Any, values: Ints, line: dict[str, Any], **area: str) -> None:
    """Bytes between edges, which are steps, in the strip."""
    ends = [*values.tolist(), *values[-1:].tolist()]
    chart.add_scatter(
        x=edges,
        y=ends,
        customdata=[format_bytes(value) for value in ends],
        hovertemplate=f"step %{{x}}: {name} %{{customdata}}<extra></extra>",
        name=name,
        mode="lines",
        line={"shape": "hv", **line},
        **area,
        row=2,
        col=1,
    )


def _add_bands(chart: Any, bands: Sequence[Band], steps: int, style: FigureStyle) -> None:
    """Bars with their names above the rectangles, and lines at their ends; those narrower than a pixel
    are left out."""
    shapes, names = [], []
    edges: dict[int, None] = {}
    for band in bands:
        width = WIDTH * (band.end - band.start) / max(1, steps)
        if width < 1:
            continue
        if width >= NARROWEST:
            edges |= dict.fromkeys((band.start, band.end))
        top = LIFT + BAND_ROW * (rows_of(bands) - band.row)
        place = {"yref": "y domain", "xref": "x"}
        bar = {"x0": band.start, "x1": band.end, "y0": top - BAR, "y1": top, "yanchor": 1}
        colour = style.of_theme(band.colours)
        shapes.append({**place, **bar, "ysizemode": "pixel", "line": {"width": 0}, "fillcolor": colour})
        words = next((each for each in (band.label, band.short) if text_width(each, 11) <= width - 4), "")
        if words:
            at = {"x": band.start, "xanchor": "left", "y": 1, "yanchor": "middle", "yshift": top - 10}
            font = {"size": 11, "color": style.colours.text}
            names.append({**place, **at, "text": _plain(words), "font": font, "showarrow": False})
    line = {"color": style.colours.axis, "width": 0.75}
    shapes += (
        {"x0": step, "x1": step, "y0": 0, "y1": 1, "xref": "x", "yref": yref, "line": line}
        for step in edges
        for yref in ("y domain", "y2 domain")
    )
    chart.update_layout(
        shapes=[*chart.layout.shapes, *shapes], annotations=[*chart.layout.annotations, *names]
    )


def _add_levels(chart: Any, plan: Plan, profile: Profile, style: FigureStyle) -> None:
    """Arena and lower bound as lines with their names above them."""
    colours = style.colours
    levels = [(plan.arena_bytes, arena_name(plan), colours.text, "solid")]
    if not plan.optimal:
        levels.append((plan.bound.nbytes, "lower bound", colours.bound, "dash"))
    for value, name, colour, dash in levels:
        chart.add_hline(
            y=value,
            line={"color": colour, "dash": dash, "width": 1.5},
            annotation={
                "text": f"{name} {format_bytes(value)}",
                "font": {"color": colour},
                "bgcolor": colours.background,
            },
            row=1,
            col=1,
        )
    peak = profile.peak_step + 0.5
    chart.add_vline(x=peak, line={"color": colours.peak, "dash": "dot", "width": 1}, row="all", col=1)
