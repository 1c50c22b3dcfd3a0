"""Rectangles → pixels, without a loop over the rectangles; and pixels as a PNG, without a library.

Each rectangle adds its colour at two corners of a table and takes it away at the other two; the sums along
both axes then have, at every pixel, the colours of all that cover it (a summed-area table turned around).
Where more than one does, as with rectangles thinner than a pixel, the pixel gets their mean.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from memplan_engine.plotting.figure_style import rgb
from memplan_engine.plotting.scene import Rects
from memplan_engine.plotting.shapes import Floats, Frame

Pixels = NDArray[np.uint8]
HAIRLINE_WIDTH, HAIRLINE_HEIGHT = 4, 3
"""From this many device pixels on a rectangle leaves one free at its right or its top."""


def paint(rects: Rects, frame: Frame, scale: float) -> Pixels:
    """`frame` at `scale` device pixels per pixel: height × width × RGBA, transparent where nothing is.

    Rectangles thinner than a device pixel come last and take one, so that nothing vanishes. O(n + pixels).
    """
    width, height = max(1, round(frame.width * scale)), max(1, round(frame.height * scale))
    left, right = (_nearest((edge - frame.left) * scale, width) for edge in (rects.left, rects.right))
    top, bottom = (_nearest((edge - frame.top) * scale, height) for edge in (rects.top, rects.bottom))
    thin = (right <= left) | (bottom <= top)
    border = max(1, round(scale))
    inner_right = np.where(right - left >= HAIRLINE_WIDTH * border, right - border, right)
    inner_top = np.where(bottom - top >= HAIRLINE_HEIGHT * border, top + border, top)
    colours = np.array([(*rgb(colour), 255) for colour in rects.palette], dtype=np.int64).reshape(-1, 4)
    wide, own = ~thin, colours[rects.colour]
    image = _mean(np.column_stack([left, inner_top, inner_right, bottom])[wide], own[wide], width, height)
    # One pixel at least, and inside of the frame.
    left, top = np.minimum(left, width - 1), np.minimum(top, height - 1)
    right, bottom = np.maximum(right, left + 1), np.maximum(bottom, top + 1)
    slim = _mean(np.column_stack([left, top, right, bottom])[thin], own[thin], width, height)
    return np.where(slim[..., 3:] > 0, slim, image)


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
