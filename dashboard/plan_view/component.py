"""Mounting the chart as a Streamlit v2 component and keeping the selection straight.

What the chart asks the server for while somebody zooms goes through a second component, which draws nothing.
It sits in a fragment of its own, so that a question runs nothing but its answer, and the chart's own data,
which holds the whole picture, does not travel again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st
from memplan_dashboard.plan_view.packing import pack
from memplan_dashboard.plan_view.panel import Difference, Filter, Panel
from memplan_dashboard.plan_view.windows import Crop, answers, first_crops, is_large, parse_request, scene_of
from streamlit.components.v2.types import ComponentRenderer

from memplan_engine.plotting.bundling import CHART_MODULES, bundle

FRONTEND = Path(__file__).parent / "frontend"
MODULES = (
    "color.js",
    "element.js",
    "decode.js",
    "layers.js",
    "limits.js",
    "layout.js",
    "raster.js",
    "patterns.js",
    "labels.js",
    "level_names.js",
    "bands.js",
    "panel.js",
    "overlay.js",
    "neighbours.js",
    "tooltip.js",
    "legend.js",
    "filters.js",
    "follow.js",
    "difference.js",
    "gestures.js",
    "ports.js",
    "windows.js",
    "recall.js",
    "chart.js",
    "main.js",
)
"""In this order no module runs code that needs a later one."""
FEED_MODULES = ("ports.js", "feed.js")
"""Those of the component that only hands on what the server answers."""


@cache
def script() -> str:
    """The modules in one."""
    return bundle([*CHART_MODULES, *(FRONTEND / name for name in MODULES)])


@cache
def feed_script() -> str:
    """The modules of the feed in one."""
    return bundle(FRONTEND / name for name in FEED_MODULES)


@cache
def styles() -> str:
    """The style sheet."""
    return (FRONTEND / "plan_view.css").read_text("utf-8")


MAX_PANELS = 4
_MEMORY = "{}:selection"


@dataclass(frozen=True, slots=True)
class ViewEvent:
    """What the reader did: the buffer that is selected (a row of the columns, or an `owner`), or None."""

    selected: int | None


@dataclass(slots=True)
class _Selection:
    """What both sides know. Clicks made before the page last set a selection bear an old serial and lose."""

    given: int | None
    """The argument of the last run."""
    pushed: int | None
    """What the browser was last told."""
    current: int | None
    serial: int = 0
    before: int | None = None
    """What was selected before the last click."""

    def offer(self, given: int | None, remounted: bool, renumbered: bool = False) -> None:
        """Take the page's argument, which counts only when it changed since the last run, or when the rows
        are others than they were."""
        # A page that passes back what it got may still hold what was selected before the click.
        changed = renumbered or (given != self.given and given not in (self.current, self.before))
        self.given = given
        if changed:
            self.current = given
        self.before = self.current
        if changed or remounted:
            self.pushed = self.current
            self.serial += 1

    def clicked(self, report: Any) -> None:
        """Take what the browser reports, unless the page has spoken since."""
        if isinstance(report, dict) and report.get("serial") == self.serial:
            index = report.get("index")
            self.before = self.current
            self.current = index if isinstance(index, int) else None


def plan_view(
    panels: Sequence[Panel],
    *,
    palette: Sequence[tuple[str, str]],
    legend: Sequence[tuple[str, int]],
    selected: int | None,
    key: str,
    height: int = 520,
    on_select: Callable[[int | None], None] | None = None,
    patterns: Sequence[int] | None = None,
    filters: Sequence[Filter] = (),
    on_filter: Callable[[str], None] | None = None,
    difference: Difference | None = None,
    rows: str = "",
) -> ViewEvent:
    """Draw one to four plans side by side, linked: one memory scale, one zoom, one selection.

    `palette` holds (light, dark) CSS colours, `legend` (label, palette index). `height` is that of a row of
    panels in CSS pixels. `selected` sets the selection whenever it differs from the last run's; otherwise the
    reader's last click stands, so a page may pass back what it got, or always None. `on_select` hears a click
    before the page runs again: a page that sets the selection from elsewhere, too, keeps it there. Zoom and
    selection survive reruns with the same `key`; the zoom is dropped when the time axis changes. Where the
    same rectangles get other row numbers, `rows` must change: then the selection is set anew.
    Of more than 200,000 rectangles in a panel only those that can be seen travel.

    For panels that are compared: `patterns` (a sum of PATTERNS for each colour) are drawn over the colours,
    `filters` are switches in the legend (`on_filter` hears a label), `difference` is a strip below.

    Raises ValueError for no panel, for more than four, and for a colour outside the palette.
    """
    _check(panels, palette, legend)
    selection = _selection(selected, key, rows)
    shared: dict[str, Any] = {
        "key": key,
        "height": height,
        "palette": [list(pair) for pair in palette],
        "legend": [[label, int(index)] for label, index in legend],
        "selected": selection.pushed,
        "serial": selection.serial,
        "patterns": None if patterns is None else [int(pattern) for pattern in patterns],
        "filters": [asdict(each) for each in filters] or None,
    }
    drawn = _drawn(panels, shared)

    def clicked() -> None:
        selection.clicked(st.session_state[key].get("selection"))
        if on_select:
            on_select(selection.current)

    # A component's attribute exists only when it has a callback.
    result = _renderer()(
        key=key,
        data=pack(drawn, shared, difference),
        on_selection_change=clicked,
        on_filter_change=_switched(key, filters, on_filter),
    )
    if "scene" in shared:
        _show_feed(panels, key, shared["scene"])
    selection.clicked(result.selection)
    return ViewEvent(selection.current)


def _selection(selected: int | None, key: str, rows: str) -> _Selection:
    """What is known of the selection of the chart called `key`, with the page's argument taken."""
    name = _MEMORY.format(key)
    selection: _Selection = st.session_state.setdefault(name, _Selection(selected, selected, selected))
    renumbered = st.session_state.setdefault(f"{name}:rows", rows) != rows
    st.session_state[f"{name}:rows"] = rows
    selection.offer(selected, key not in st.session_state, renumbered)
    return selection


def _drawn(panels: Sequence[Panel], shared: dict[str, Any]) -> Sequence[Panel | Crop]:
    """What travels of the panels; where that is not all of them, `shared` gets the number of the scene."""
    if not is_large(panels):
        return panels
    crops = first_crops(panels, shared["selected"])
    shared["scene"] = scene_of(crops, shared)
    return crops


def _switched(
    key: str, filters: Sequence[Filter], on_filter: Callable[[str], None] | None
) -> Callable[[], None]:
    """Tell `on_filter` which switch was clicked, if it is one of `filters`."""

    def switched() -> None:
        report = st.session_state[key].get("filter")
        label = report.get("label") if isinstance(report, dict) else None
        if on_filter and any(label == each.label for each in filters):
            on_filter(str(label))

    return switched


def _check(panels: Sequence[Panel], palette: Sequence[Any], legend: Sequence[tuple[str, int]]) -> None:
    if not 1 <= len(panels) <= MAX_PANELS:
        raise ValueError(f"{len(panels)} panels; 1 to {MAX_PANELS} can be drawn")
    used = [int(panel.color.max()) for panel in panels if len(panel.color)]
    worst = max([*used, *(index for _, index in legend)], default=-1)
    if worst >= len(palette):
        raise ValueError(f"colour {worst} is outside the palette of {len(palette)}")


def _show_feed(panels: Sequence[Panel], key: str, scene: int) -> None:
    """Answer what the chart called `key` asks about `panels`; `scene` says which picture of it is meant."""
    # Not in the fragment: the style takes it out of the flow, with what a fragment wraps around.
    with st.container(key=f"unseen_{key}_windows"):
        st.fragment(_answer)(panels, key, scene)


def _answer(panels: Sequence[Panel], key: str, scene: int) -> None:
    name = f"{key}_windows"
    kept = st.session_state.get(name)
    request = parse_request(kept.get("request") if kept else None, len(panels))
    shared = {"key": key, "scene": scene, "serial": request.serial if request else None}
    is_new = st.session_state.get(f"{name}:scene") != scene
    st.session_state[f"{name}:scene"] = scene
    near, wanted = answers(panels, request, is_new) if request else ([], [])
    _feed_renderer()(key=name, data=pack(near, shared, wanted=wanted), on_request_change=_heard)


def _heard() -> None:
    """A component's value has a place in the session only when there is a callback for it."""


@cache
def _renderer() -> ComponentRenderer:
    return st.components.v2.component("memplan.plan_view", css=styles(), js=script())


@cache
def _feed_renderer() -> ComponentRenderer:
    return st.components.v2.component("memplan.plan_windows", js=feed_script())
