"""A plan as PNG, laid out as the SVG is, at any resolution. Words need Pillow; rectangles need no library.

Rectangles become pixels without a loop over them: each adds its colour at two corners of a table and takes it
away at the other two; the sums along both axes then have, at every pixel, the colours of all that cover it (a
summed-area table turned around). Where more than one does, as with rectangles thinner than a pixel, the pixel
gets their mean.
"""

from __future__ import annotations

import io
import struct
import zlib
from itertools import pairwise
from math import hypot
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.plan import Plan
from memplan_engine.plotting.figure_style import PIXELS_PER_INCH, FigureStyle, rgb
from memplan_engine.plotting.scene import Rects, Scene, make_scene, rect_labels
from memplan_engine.plotting.shapes import Area, Box, Floats, Frame, Line, Path, Shape, Text
from memplan_engine.system import write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont, ImageFont


HATCH = 5.0
"""From line to line of a hatch, pixels."""
MOST_PIXELS = 100_000_000
BAND_PIXELS = 1 << 20
"""Pixels that are painted at once: each takes some hundred bytes meanwhile."""
ANCHORS = {"start": "lm", "middle": "mm", "end": "rm"}
Pixels = NDArray[np.uint8]
HAIRLINE_WIDTH, HAIRLINE_HEIGHT = 4, 3
"""From this many device pixels on a rectangle leaves one free at its right or its top."""


def write_png(plan: Plan, path: FilePath | str, style: FigureStyle | None = None) -> None:
    """Write `plan` to `path`, atomically; raises as `to_png` does, and InputError for a bad place."""
    write_atomically(path, to_png(plan, style))


def need_pillow() -> None:
    """Raise MissingDependencyError where Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise MissingDependencyError("pillow", "figures", "drawing a PNG") from None


def to_png(plan: Plan, style: FigureStyle | None = None) -> bytes:
    """`plan` as a PNG of width × dpi / 96 times height × dpi / 96 device pixels.

    Raises
    ------
    MissingDependencyError: Pillow is not installed. InputError: more than MOST_PIXELS device pixels.
    """
    need_pillow()
    style = style or FigureStyle()
    scale = style.dpi / PIXELS_PER_INCH
    width, height = round(style.width * scale), round(style.height * scale)
    if width * height > MOST_PIXELS:
        expected = f"{MOST_PIXELS:,} device pixels at most: a smaller size or fewer dpi"
        raise InputError("figure", "", f"{width:,} × {height:,} device pixels", expected)
    image = _drawn(make_scene(plan, style), width, height, scale)
    stream = io.BytesIO()
    image.save(stream, "PNG", dpi=(style.dpi, style.dpi))
    return stream.getvalue()


def _drawn(scene: Scene, width: int, height: int, scale: float) -> Image:
    from PIL import Image

    image = Image.new("RGB", (width, height), scene.background)
    pen = _Pen(image, scale)
    pen.draw(*scene.behind)
    rects = Image.fromarray(paint(scene.rects, scene.plot, scale), "RGBA")
    image.paste(rects, (round(scene.plot.left * scale), round(scene.plot.top * scale)), rects)
    pen.draw(*rect_labels(scene.rects), *scene.before)
    return image


class _Pen:
    """Draws shapes on `image` at `scale` device pixels per pixel."""

    def __init__(self, image: Image, scale: float) -> None:
        from PIL import ImageDraw

        self.image, self.scale = image, scale
        self.canvas = ImageDraw.Draw(image)
        self.fonts: dict[float, FreeTypeFont | ImageFont] = {}

    def draw(self, *shapes: Shape) -> None:
        """Draw `shapes` in their order."""
        for shape in shapes:
            if isinstance(shape, Text):
                self._text(shape)
            elif isinstance(shape, Line):
                self._line(shape)
            elif isinstance(shape, Path) and shape.dash:
                self._dashed(shape)
            elif isinstance(shape, Path):
                corners = [(round(x), round(y)) for x, y in (shape.points * self.scale).tolist()]
                self.canvas.line(corners, shape.colour, max(1, round(shape.width * self.scale)))
            else:
                self._area(shape)

    def _text(self, text: Text) -> None:
        from PIL import ImageFont

        if text.size not in self.fonts:
            # Pillow's own font: the same letters, and so the same pixels, on every machine.
            self.fonts[text.size] = ImageFont.load_default(text.size * self.scale)
        self.canvas.text(
            (text.x * self.scale, text.y * self.scale),
            text.words,
            text.colour,
            self.fonts[text.size],
            anchor=ANCHORS[text.anchor],
            stroke_width=0.3 * self.scale if text.bold else 0,
        )

    def _dashed(self, path: Path) -> None:
        """Line by line; the pattern goes on around the corners."""
        drawn = 0.0
        for (x0, y0), (x1, y1) in pairwise(path.points.tolist()):
            self._line(Line(x0, y0, x1, y1, path.colour, path.width, path.dash), drawn)
            drawn += hypot(x1 - x0, y1 - y0)

    def _line(self, line: Line, drawn: float = 0.0) -> None:
        """Straight along an axis, as all are; dashes one by one; `drawn` pixels are drawn already."""
        length = hypot(line.x1 - line.x0, line.y1 - line.y0)
        pattern = line.dash or (length or 1.0,)
        at, number = -(drawn % sum(pattern)), 0
        while at < length:
            begin, end = max(0.0, at), min(length, at + pattern[number % len(pattern)])
            if number % 2 == 0 and begin < end:
                self._stroke(line, begin / length, end / length)
            at, number = at + pattern[number % len(pattern)], number + 1

    def _stroke(self, line: Line, begin: float, end: float) -> None:
        thick = max(1, round(line.width * self.scale))
        (x0, x1), (y0, y1) = (
            sorted(round((low + (high - low) * share) * self.scale) for share in (begin, end))
            for low, high in ((line.x0, line.x1), (line.y0, line.y1))
        )
        # Pillow's boxes have their last pixel in them.
        if y0 == y1:
            top = y0 - thick // 2
            self.canvas.rectangle((x0, top, max(x0, x1 - 1), top + thick - 1), line.colour)
        else:
            self.canvas.rectangle((x0 - thick // 2, y0, x0 - thick // 2 + thick - 1, y1 - 1), line.colour)

    def _area(self, shape: Box | Area) -> None:
        points = shape.points if isinstance(shape, Area) else _corners(shape.frame)
        outline = [(round(x), round(y)) for x, y in (points * self.scale).tolist()]
        self.canvas.polygon(outline, shape.colour)
        if shape.hatch:
            self._hatch(outline, shape.hatch)

    def _hatch(self, outline: list[tuple[int, int]], colour: str) -> None:
        from PIL import Image, ImageDraw

        left, top = (min(point[axis] for point in outline) for axis in (0, 1))
        right, bottom = (max(point[axis] for point in outline) for axis in (0, 1))
        if right <= left or bottom <= top:
            return
        inside = Image.new("L", (right - left, bottom - top))
        ImageDraw.Draw(inside).polygon([(x - left, y - top) for x, y in outline], 255)
        y, x = np.mgrid[top:bottom, left:right]
        period = max(3, round(HATCH * self.scale))
        lines = (x + y) % period < max(1, round(0.75 * self.scale))
        mask = np.where(lines, np.asarray(inside), 0).astype(np.uint8)
        self.image.paste(colour, (left, top), Image.fromarray(mask, "L"))


def _corners(frame: Frame) -> Floats:
    return np.array(
        [
            (frame.left, frame.top),
            (frame.right, frame.top),
            (frame.right, frame.bottom),
            (frame.left, frame.bottom),
        ]
    )


def paint(rects: Rects, frame: Frame, scale: float) -> Pixels:
    """`frame` at `scale` device pixels per pixel: height × width × RGBA, transparent where nothing is.

    Rectangles thinner than a device pixel come last and take one, so that nothing vanishes. O(n · bands +
    pixels).
    """
    width, height = max(1, round(frame.width * scale)), max(1, round(frame.height * scale))
    left, right = (_nearest((edge - frame.left) * scale, width) for edge in (rects.left, rects.right))
    top, bottom = (_nearest((edge - frame.top) * scale, height) for edge in (rects.top, rects.bottom))
    thin = (right <= left) | (bottom <= top)
    border = max(1, round(scale))
    inner_right = np.where(right - left >= HAIRLINE_WIDTH * border, right - border, right)
    inner_top = np.where(bottom - top >= HAIRLINE_HEIGHT * border, top + border, top)
    colours = np.array([(*rgb(colour), 255) for colour in rects.palette], dtype=np.int64).reshape(-1, 4)
    own = colours[rects.colour]
    wide = np.column_stack([left, inner_top, inner_right, bottom])[~thin], own[~thin]
    # One pixel at least, and inside of the frame.
    left, top = np.minimum(left, width - 1), np.minimum(top, height - 1)
    right, bottom = np.maximum(right, left + 1), np.maximum(bottom, top + 1)
    slim = np.column_stack([left, top, right, bottom])[thin], own[thin]
    image = np.zeros((height, width, 4), np.uint8)
    for row in range(0, height, rows := max(1, BAND_PIXELS // width)):
        band = image[row : row + rows]
        for boxes, filled in (wide, slim):
            covered = _mean(*_within(boxes, filled, row, row + len(band)), width, len(band))
            np.copyto(band, covered, where=covered[..., 3:] > 0)
    return image


def _within(
    boxes: NDArray[np.int64], colours: NDArray[np.int64], low: int, high: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What lies in the rows `low` to `high`, counted from `low`."""
    there = (boxes[:, 1] < high) & (boxes[:, 3] > low)
    cut = boxes[there]
    cut[:, 1::2] = np.clip(cut[:, 1::2] - low, 0, high - low)
    return cut, colours[there]


def _nearest(edges: Floats, most: int) -> NDArray[np.int64]:
    return np.clip(np.floor(edges + 0.5), 0, most).astype(np.int64)


def _mean(boxes: NDArray[np.int64], colours: NDArray[np.int64], width: int, height: int) -> Pixels:
    """The mean colour of the `boxes` (left, top, right, bottom) over each pixel, rounded down."""
    if not len(boxes):
        return np.zeros((height, width, 4), np.uint8)
    left, top, right, bottom = boxes.T
    count = _covered(left, top, right, bottom, np.ones(len(boxes), np.int64), width, height)
    channels = [
        _covered(left, top, right, bottom, colours[:, channel], width, height) // np.maximum(count, 1)
        for channel in range(4)
    ]
    return np.stack(channels, axis=-1).astype(np.uint8)


def _covered(
    left: NDArray[np.int64],
    top: NDArray[np.int64],
    right: NDArray[np.int64],
    bottom: NDArray[np.int64],
    values: NDArray[np.int64],
    width: int,
    height: int,
) -> NDArray[np.int64]:
    """At each pixel the sum of the `values` of the boxes that cover it."""
    stride = width + 1
    corners = ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1))
    table = np.zeros((height + 1) * stride)
    for row, column, sign in corners:
        table += sign * np.bincount(row * stride + column, weights=values, minlength=len(table))
    grid = table.reshape(height + 1, stride)[:height, :width]
    # Whole numbers far below 2^53: the sums are exact.
    return np.cumsum(np.cumsum(grid, axis=0), axis=1).astype(np.int64)


def png_bytes(pixels: Pixels) -> bytes:
    """`pixels` (height × width × RGBA) as a PNG."""
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 4 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
