"""A plan as SVG: vectors throughout, but for more rectangles than a viewer of papers can take."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path as FilePath

import numpy as np

from memplan_engine.plan import Plan
from memplan_engine.plotting.figure_style import PIXELS_PER_INCH, FigureStyle
from memplan_engine.plotting.png_figure import paint, png_bytes
from memplan_engine.plotting.scene import Rects, Scene, make_scene, rect_labels
from memplan_engine.plotting.shapes import Area, Box, Line, Path, Shape, Text
from memplan_engine.system import write_atomically

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
MOST_RECTS = 20_000
"""Beyond, the rectangles are one embedded picture; all words and lines stay vectors."""
MOST_PIXELS = 25_000_000
"""Of that picture: a larger figure, or one of more dpi, has a coarser one."""
MOST_TITLES = 2_000
"""Up to this many, each rectangle bears its buffer's name, which browsers show under the pointer."""
LEAST_SIDE, HAIRLINE = 0.75, 0.5
"""Pixels: no rectangle is thinner than the first, and where there is room it leaves the second free."""
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML has no way to write."""


def write_svg(plan: Plan, path: FilePath | str, style: FigureStyle | None = None) -> None:
    """Write `plan` to `path`, atomically; raises InputError when that cannot be done."""
    write_atomically(path, to_svg(plan, style).encode())


def to_svg(plan: Plan, style: FigureStyle | None = None, most_rects: int = MOST_RECTS) -> str:
    """`plan` as an SVG document: the same plan and style give the same text. Names go in as text, escaped."""
    style = style or FigureStyle()
    return svg_of(make_scene(plan, style), style, most_rects)


def svg_of(scene: Scene, style: FigureStyle, most_rects: int = MOST_RECTS) -> str:
    """`scene` as an SVG document; of more rectangles than `most_rects` it has a picture."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{scene.width}" height="{scene.height}" '
        f'viewBox="0 0 {scene.width} {scene.height}" font-family="{FONT}" role="img">',
        f"<title>{escape(scene.title)}</title>",
        *_hatches([*scene.behind, *scene.before]),
        f'<rect class="ground" width="{scene.width}" height="{scene.height}" fill="{scene.background}"/>',
        *map(_shape, scene.behind),
    ]
    many = len(scene.rects) > most_rects
    lines += [_picture(scene, style.dpi / PIXELS_PER_INCH)] if many else _rects(scene.rects)
    lines += map(_shape, [*rect_labels(scene.rects), *scene.before])
    return "\n".join([*lines, "</svg>", ""])


def escape(text: str) -> str:
    """`text` as XML and HTML take it between tags and in attributes; what neither can hold is "\ufffd"."""
    text = _UNFIT.sub("\ufffd", text)
    for letter, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        text = text.replace(letter, entity)
    return text


def _rects(rects: Rects) -> list[str]:
    """A group a colour, in the order of the buffers."""
    width, height = rects.right - rects.left, rects.bottom - rects.top
    width = np.where(width >= 4, width - HAIRLINE, np.maximum(width, LEAST_SIDE))
    shown = np.where(height >= 3, height - HAIRLINE, np.maximum(height, LEAST_SIDE))
    top = rects.bottom - shown
    named = len(rects) <= MOST_TITLES
    lines = []
    for code, colour in enumerate(rects.palette):
        own = np.flatnonzero(rects.colour == code)
        if not len(own):
            continue
        columns = (rects.left[own], top[own], width[own], shown[own], rects.owner[own])
        lines.append(f'<g class="buffers" fill="{colour}">')
        for x, y, w, h, owner in zip(*(column.tolist() for column in columns), strict=True):
            title = f"<title>{escape(rects.names[owner])}</title>" if named else ""
            end = f">{title}</rect>" if title else "/>"
            lines.append(f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}"{end}')
        lines.append("</g>")
    return lines


def _picture(scene: Scene, scale: float) -> str:
    plot = scene.plot
    scale = min(scale, (MOST_PIXELS / (plot.width * plot.height)) ** 0.5)
    data = b64encode(png_bytes(paint(scene.rects, plot, scale))).decode()
    return (
        f'<image class="buffers" x="{_n(plot.left)}" y="{_n(plot.top)}" width="{_n(plot.width)}" '
        f'height="{_n(plot.height)}" preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
    )


def _shape(shape: Shape) -> str:
    if isinstance(shape, Text):
        weight = ' font-weight="600"' if shape.bold else ""
        anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
        # Not every viewer knows dominant-baseline: a third of the size below is close in all fonts.
        y = shape.y + 0.35 * shape.size
        place = f'x="{_n(shape.x)}" y="{_n(y)}" font-size="{_n(shape.size)}"'
        return f'<text {place} fill="{shape.colour}"{anchor}{weight}>{escape(shape.words)}</text>'
    if isinstance(shape, Line | Path):
        dash = f' stroke-dasharray="{" ".join(map(_n, shape.dash))}"' if shape.dash else ""
        stroke = f'stroke="{shape.colour}" stroke-width="{_n(shape.width)}"'
    if isinstance(shape, Line):
        ends = f'x1="{_n(shape.x0)}" y1="{_n(shape.y0)}" x2="{_n(shape.x1)}" y2="{_n(shape.y1)}"'
        return f"<line {ends} {stroke}{dash}/>"
    if isinstance(shape, Path):
        return f'<polyline points="{_corners(shape)}" fill="none" {stroke} stroke-linejoin="round"{dash}/>'
    return "".join(_filled(shape, colour) for colour in (shape.colour, _hatch_of(shape)) if colour)


def _filled(shape: Box | Area, fill: str) -> str:
    if isinstance(shape, Area):
        return f'<polygon points="{_corners(shape)}" fill="{fill}"/>'
    frame = shape.frame
    outline = f"M{_n(frame.left)} {_n(frame.top)}h{_n(frame.width)}v{_n(frame.height)}h-{_n(frame.width)}z"
    return f'<path d="{outline}" fill="{fill}"/>'


def _corners(shape: Area | Path) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in shape.points.tolist())


def _hatch_of(shape: Box | Area) -> str:
    return f"url(#hatch-{shape.hatch[1:]})" if shape.hatch else ""


def _hatches(shapes: Iterable[Shape]) -> list[str]:
    """The patterns that `shapes` are filled with."""
    used = dict.fromkeys(shape.hatch for shape in shapes if isinstance(shape, Box | Area) and shape.hatch)
    return [
        f'<defs><pattern id="hatch-{colour[1:]}" width="5" height="5" patternUnits="userSpaceOnUse">'
        f'<path d="M-1 6L6 -1M-1 1L1 -1M4 6L6 4" stroke="{colour}" stroke-width="0.75"/></pattern></defs>'
        for colour in used
    ]


def _n(value: float) -> str:
    """Two decimals at most, none that are zero."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
