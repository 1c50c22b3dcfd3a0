"""Names inside the rectangles that have room for them."""

from __future__ import annotations

import numpy as np

from memplan_engine.plotting.figure_style import ink_on, shorten
from memplan_engine.plotting.scene import Rects
from memplan_engine.plotting.shapes import Text

SIZE = 10.0
LEAST_WIDTH, LEAST_HEIGHT = 34.0, 13.0
MOST_LABELS = 400
INSET = 4.0
LEAST_LETTERS = 6
"""Fewer letters of a longer name say nothing."""


def rect_labels(rects: Rects) -> list[Text]:
    """The names of the MOST_LABELS largest rectangles with room, cut to fit."""
    width, height = rects.right - rects.left, rects.bottom - rects.top
    roomy = np.flatnonzero((width >= LEAST_WIDTH) & (height >= LEAST_HEIGHT))
    largest = roomy[np.argsort(-(width * height)[roomy], kind="stable")[:MOST_LABELS]]
    labels = []
    for place in np.sort(largest).tolist():
        name = rects.names[rects.owner[place]]
        words = shorten(name, width[place] - 2 * INSET, SIZE)
        if words == name or len(words) > LEAST_LETTERS:
            middle = (rects.top[place] + rects.bottom[place]) / 2
            ink = ink_on(rects.palette[rects.colour[place]])
            labels.append(Text(rects.left[place] + INSET, middle, words, ink, size=SIZE))
    return labels
