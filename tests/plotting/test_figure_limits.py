"""What images may take, at the edge of what may be asked for."""

from __future__ import annotations

import base64
import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from memplan_engine import FigureStyle, Plan, make_plan, make_problem
from memplan_engine.plotting import png_figure, svg_figure
from tests import ROOT
from tests.support.processes import PEAK_KIB

LARGE = (
    PEAK_KIB
    + """
import sys, time
import numpy as np
from memplan_engine import make_plan, make_problem
from memplan_engine.plotting.figure_style import FigureStyle
from memplan_engine.plotting.png_figure import to_png
from memplan_engine.plotting.svg_figure import to_svg
from memplan_engine.reporters.html.report_html import to_html

draw, count = np.random.default_rng(0), 200_000
start = draw.integers(0, count, count)
problem = make_problem(start, start + draw.integers(1, 200, count), draw.integers(1, 1 << 20, count))
plan = make_plan(problem, "naive")
draw = {
    "png": lambda: to_png(plan, FigureStyle(width=10_000, height=10_000, dpi=96)),
    "svg": lambda: to_svg(plan, FigureStyle(width=20_000, height=20_000, dpi=2400)),
    "html": lambda: to_html(plan),
}[sys.argv[1]]
begin = time.process_time()
nbytes = len(draw())
seconds = time.process_time() - begin
print(seconds, nbytes, peak_kib() << 10)
"""
)


@pytest.mark.quarantine
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux gives it")
@pytest.mark.parametrize("kind", ["png", "svg", "html"])
def test_the_largest_image_there_may_be_takes_a_minute_and_two_gigabytes(kind: str) -> None:
    """Of 200,000 buffers; such a PNG took 8 GB once, and such an SVG all memory that there was."""
    limits = f"ulimit -v {6 << 20}; exec"
    ran = subprocess.run(
        ["sh", "-c", f'{limits} "$@"', "sh", sys.executable, "-c", LARGE, kind],
        capture_output=True, text=True, cwd=ROOT, timeout=580,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    seconds, nbytes, memory = map(float, ran.stdout.split())
    assert seconds < 60
    assert nbytes < 30 << 20
    assert memory < 2 << 30


def some_plan(count: int) -> Plan:
    start = np.arange(count)
    return make_plan(make_problem(start, start + 3, np.arange(count) * 64 + 8), "greedy_by_size")


@pytest.mark.quarantine
@pytest.mark.parametrize("pixels", [1, 1000, 1 << 16])
def test_a_png_is_the_same_in_however_many_bands(monkeypatch: pytest.MonkeyPatch, pixels: int) -> None:
    plan, style = some_plan(500), FigureStyle(width=300, height=250)
    at_once = png_figure.to_png(plan, style)
    monkeypatch.setattr(png_figure, "BAND_PIXELS", pixels)
    assert png_figure.to_png(plan, style) == at_once


@pytest.mark.quarantine
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
