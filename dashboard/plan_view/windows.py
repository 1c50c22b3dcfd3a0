"""Plans too large for a browser: what it gets of them, the whole first and then the window it looks at."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
from memplan_dashboard.plan_view.panel import Ints, Panel
from numpy.typing import NDArray

from memplan_engine.plotting.viewport import MOST_VECTORS, Rectangles, View, Window, view_window

FIRST_CELLS = (1340, 370)
"""Device pixels of the first picture, before the browser has said how many it has."""
HEADROOM = 1.09
"""As the browser has it: how much of the memory axis is seen, in arenas."""
MOST_SECTIONS = 8192
MOST_WANTED = 64
MOST_PIXELS = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class ShownProfile:
    """The profile of a window: columns as `Panel` has them, up to the step `end`. Each entry stands for
    `sections_each` sections and has the largest values of them."""

    start: Ints
    live: Ints
    high: Ints
    end: int
    sections_each: int


@dataclass(frozen=True, slots=True, eq=False)
class Crop:
    """A panel with nothing but what `view` needs; `total` rectangles it had. Its `owner` is never None."""

    panel: Panel
    view: View
    profile: ShownProfile
    total: int


@dataclass(frozen=True, slots=True)
class Request:
    """What the browser asks for: a window on `cells` (width, height), one pair a panel, with hairlines of
    `border` device pixels, and all about the buffers `wanted`. What is `drawn` already need not be sent."""

    serial: int
    window: Window
    drawn: bool
    cells: tuple[tuple[int, int], ...]
    border: int
    wanted: tuple[int, ...]


def is_large(panels: Sequence[Panel]) -> bool:
    """Whether one of the panels has more rectangles than the browser should hold."""
    return any(len(panel.start) > MOST_VECTORS for panel in panels)


def whole(panels: Sequence[Panel]) -> Window:
    """All that the panels show before anybody zooms."""
    tops = [max(panel.arena, panel.bound, panel.before or 0) for panel in panels]
    return Window(0.0, float(max(1, *(panel.steps for panel in panels), 1)), 0.0, max(1, *tops, 1) * HEADROOM)


def first_crops(panels: Sequence[Panel], selected: int | None) -> list[Crop]:
    """What is sent first: the picture of everything, and the selected buffer wherever it is."""
    window, picked = whole(panels), () if selected is None else (selected,)
    return [crop(panel, look(panel, window, FIRST_CELLS, 1), picked) for panel in panels]


def answers(panels: Sequence[Panel], request: Request, is_new: bool = False) -> tuple[list[Crop], list[Crop]]:
    """What was asked for: the crops of the window, and those of single buffers. `is_new`: the panels are
    others than those that were drawn."""
    near = []
    if is_new or not request.drawn:
        near = [
            crop(_unlabelled(panel), look(panel, request.window, cells, request.border))
            for panel, cells in zip(panels, request.cells, strict=True)
        ]
    wanted = [single(_unlabelled(panel), request.wanted) for panel in panels] if request.wanted else []
    return near, wanted


def _unlabelled(panel: Panel) -> Panel:
    """Without what the browser has from the first crop."""
    return replace(panel, step_labels=None, bands=(), lines=(), layers=())


def look(panel: Panel, window: Window, cells: tuple[int, int], border: int) -> View:
    """The rows of `panel` that a picture of `window` needs."""
    columns = Rectangles(panel.start, panel.end, panel.offset, panel.size, panel.dimmed)
    return view_window(columns, window, cells, border, MOST_VECTORS)


def crop(panel: Panel, view: View, buffers: Sequence[int] = ()) -> Crop:
    """`panel` with the rows of `view` and those of some `buffers`, and the profile of its window."""
    rows = _united(view.rows, rows_of(panel, buffers))
    profile = shown_profile(panel, view.window)
    return Crop(_with_rows(panel, rows, profile), view, profile, len(panel.start))


def single(panel: Panel, buffers: Sequence[int]) -> Crop:
    """`panel` with the rectangles of some buffers, and no profile."""
    none = np.zeros(0, np.int64)
    profile = ShownProfile(none, none, none, 0, 1)
    rows = rows_of(panel, buffers)
    view = View(rows, Window(0, 1, 0, 1), (1, 1), False)
    return Crop(_with_rows(panel, rows, profile), view, profile, len(panel.start))


def rows_of(panel: Panel, buffers: Sequence[int]) -> NDArray[np.int32]:
    """The rectangles of some buffers, in ascending order; buffers that are not there have none."""
    if not len(buffers):
        return np.zeros(0, np.int32)
    wanted = np.unique(np.asarray(buffers, np.int64))
    if panel.owner is not None:
        return np.flatnonzero(np.isin(panel.owner, wanted)).astype(np.int32)
    return wanted[(wanted >= 0) & (wanted < len(panel.start))].astype(np.int32)


def _united(rows: NDArray[np.int32], more: NDArray[np.int32]) -> NDArray[np.int32]:
    """All numbers of both, each of which ascends: numpy's own union sorts a hundred thousand for one more."""
    places = np.searchsorted(rows, more)
    known = np.append(rows, -1)[places] == more
    return np.insert(rows, places[~known], more[~known])


def shown_profile(panel: Panel, window: Window, most: int = MOST_SECTIONS) -> ShownProfile:
    """The sections that `window` reaches into; where they are more than `most`, several at a time."""
    bounds = panel.profile_start
    first = max(0, int(np.searchsorted(bounds, window.x0, side="right")) - 1)
    last = int(np.searchsorted(bounds, window.x1, side="left"))
    end = int(bounds[last]) if last < len(bounds) else panel.steps
    each = max(1, -(-(last - first) // most))
    places = np.arange(first, last, each)
    if not len(places):
        return ShownProfile(bounds[:0], bounds[:0], bounds[:0], end, 1)
    live, high = (
        np.maximum.reduceat(column[first:last], places - first)
        for column in (panel.profile_live, panel.profile_high)
    )
    return ShownProfile(bounds[places], live, high, end, each)


def _with_rows(panel: Panel, rows: NDArray[np.int32], profile: ShownProfile) -> Panel:
    return replace(
        panel,
        start=panel.start[rows],
        end=panel.end[rows],
        offset=panel.offset[rows],
        size=panel.size[rows],
        color=panel.color[rows],
        dimmed=None if panel.dimmed is None else panel.dimmed[rows],
        owner=rows if panel.owner is None else panel.owner[rows],
        buffers=len(panel.names) if panel.buffers is None else panel.buffers,
        profile_start=profile.start,
        profile_live=profile.live,
        profile_high=profile.high,
        panes=None,
    )


def scene_of(crops: Sequence[Crop], shared: dict[str, Any]) -> int:
    """A number for what is drawn: answers that belong to another one are dropped by the browser."""
    scene = zlib.crc32(json.dumps(shared, default=str).encode())
    for each in crops:
        panel = each.panel
        scene = zlib.crc32(f"{panel.title} {panel.subtitle} {panel.arena} {panel.capacity}".encode(), scene)
        for column in (panel.start, panel.end, panel.offset, panel.size, panel.color, panel.dimmed):
            scene = scene if column is None else zlib.crc32(column.tobytes(), scene)
    return scene


def parse_request(value: Any, panels: int) -> Request | None:
    """What a browser sent, if it makes sense for so many panels: nothing of it is trusted."""
    if not isinstance(value, dict):
        return None
    serial, border, wanted = (value.get(name) for name in ("serial", "border", "wanted"))
    if not _is_int(serial) or not _is_int(border) or not 1 <= border <= 4 or not isinstance(wanted, list):
        return None
    buffers = tuple(each for each in wanted[:MOST_WANTED] if _is_int(each) and abs(each) < 2**31)
    window, cells = _window(value.get("window")), _cells(value.get("cells"), panels)
    if window is None or cells is None:
        return None
    return Request(serial, window, value.get("drawn") is True, cells, border, buffers)


def _window(numbers: Any) -> Window | None:
    if not isinstance(numbers, list) or len(numbers) != 4:
        return None
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in numbers):
        return None
    x0, x1, y0, y1 = (float(each) for each in numbers)
    return Window(x0, x1, y0, y1) if x0 < x1 and y0 < y1 else None


def _cells(sizes: Any, panels: int) -> tuple[tuple[int, int], ...] | None:
    if not isinstance(sizes, list) or len(sizes) != panels:
        return None
    fits = all(
        isinstance(each, list)
        and len(each) == 2
        and all(_is_int(side) and 1 <= side <= MOST_PIXELS for side in each)
        for each in sizes
    )
    return tuple((each[0], each[1]) for each in sizes) if fits else None


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
