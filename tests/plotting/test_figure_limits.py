"""What images may take, at the edge of what may be asked for."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from memplan_engine import FigureStyle, Plan, make_plan, make_problem
from memplan_engine.plotting import png_figure, svg_figure
from memplan_engine.reporters.html.report_html import to_html
from tests.support.work import peak_bytes

LARGEST: dict[str, Callable[[Plan], bytes | str]] = {
    "png": lambda plan: png_figure.to_png(plan, FigureStyle(width=10_000, height=10_000, dpi=96)),
    "svg": lambda plan: svg_figure.to_svg(plan, FigureStyle(width=20_000, height=20_000, dpi=2400)),
    "html": to_html,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGEST)
def test_the_largest_image_there_may_be_takes_two_gigabytes(kind: str) -> None:
    """Of 200,000 buffers; such a PNG took 8 GB once, and such an SVG all memory that there was."""
    draw, count = np.random.default_rng(0), 200_000
    start = draw.integers(0, count, count)
    sizes = draw.integers(1, 1 << 20, count)
    plan = make_plan(make_problem(start, start + draw.integers(1, 200, count), sizes), "naive")
    drawn: list[bytes | str] = []
    # In addition, Pillow holds 4 bytes a device pixel, of which there are 100 million at most.
    assert peak_bytes(lambda: drawn.append(LARGEST[kind](plan))) < 3 << 29
    assert len(drawn[0]) < 30 << 20


def some_plan(count: int) -> Plan:
    start = np.arange(count)
    return make_plan(make_problem(start, start + 3, np.arange(count) * 64 + 8), "greedy_by_size")


@pytest.mark.parametrize("pixels", [1, 1000, 1 << 16])
def test_a_png_is_the_same_in_however_many_bands(monkeypatch: pytest.MonkeyPatch, pixels: int) -> None:
    plan, style = some_plan(500), FigureStyle(width=300, height=250)
    at_once = png_figure.to_png(plan, style)
    monkeypatch.setattr(png_figure, "BAND_PIXELS", pixels)
    assert png_figure.to_png(plan, style) == at_once


def test_the_picture_in_an_svg_has_so_many_pixels_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    def pixels(most: int) -> int:
        monkeypatch.setattr(svg_figure, "MOST_PIXELS", most)
        text = svg_figure.to_svg(some_plan(40), FigureStyle(width=400, height=300, dpi=960), most_rects=39)
        data = base64.b64decode(text.partition("data:image/png;base64,")[2].partition('"')[0])
        width, height = Image.open(io.BytesIO(data)).size
        return width * height

    whole = pixels(10**9)
    assert pixels(whole) == whole
    assert 9_000 < pixels(10_000) <= 11_000
