"""Mounting the chart as a Streamlit v2 component and keeping the selection straight.

What the chart asks the server for while somebody zooms goes through a second component, which draws nothing.
It sits in a fragment of its own, so that a question runs nothing but its answer, and the chart's own data,
which holds the whole picture, does not travel again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import streamlit as st
from memplan_dashboard.plan_view.packing import pack
from memplan_dashboard.plan_view.panel import Difference, Filter, Found, Panel
from memplan_dashboard.plan_view.windows import Crop, answers, first_crops, is_large, parse_request, scene_of
from streamlit.components.v2.types import ComponentRenderer

from memplan_engine.plotting.bundling import CHART_MODULES, bundle

FRONTEND = Path(__file__).parent / "frontend"
MODULES = (
    "color.js",
    "element.js",
    "holders.js",
    "decode.js",
    "layers.js",
    "limits.js",
    "layout.js",
    "raster.js",
    "patterns.js",
    "labels.js",
    "matches.js",
    "ribbon.js",
    "level_names.js",
    "callouts.js",
    "summary_table.js",
    "panel.js",
    "steps.js",
    "marks.js",
    "measuring.js",
    "overlay.js",
    "neighbours.js",
    "tooltip.js",
    "pointing.js",
    "selection.js",
    "legend.js",
    "listeners.js",
    "filters.js",
    "follow.js",
    "minimap.js",
    "difference.js",
    "gestures.js",
    "key_map.js",
    "find.js",
    "toolbar.js",
    "moves.js",
    "peak_tree.js",
    "details.js",
    "tied_peaks.js",
    "side.js",
    "ports.js",
    "windows.js",
    "address.js",
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
def notebook_script() -> str:
    """The modules in one, with what a notebook calls in place of what Streamlit does."""
    chart = script().replace("export default function show", "function show")
    return chart + (FRONTEND / "notebook.js").read_text("utf-8")


@cache
def feed_script() -> str:
    """The modules of the feed in one."""
    return bundle(FRONTEND / name for name in FEED_MODULES)


@cache
def styles() -> str:
    """The style sheets in one."""
    files = (FRONTEND / name for name in ("plan_view.css", "side.css", "unseen.css"))
    return "".join(file.read_text("utf-8") for file in files)


MAX_PANELS = 4
_MEMORY = "{}:{}"
Marks = tuple[int | None, int | None]
"""The step that is looked at, None for that of the peak, and a second one to hold it against."""
NO_MARKS: Marks = (None, None)


@dataclass(frozen=True, slots=True)
class ViewEvent:
    """What the reader did: the buffer that is selected (a row of the columns, or an `owner`), or None, and
    the steps that are marked."""

    selected: int | None
    marks: Marks = NO_MARKS


def _index(report: dict[str, Any]) -> int | None:
    """The buffer of a click."""
    index = report.get("index")
    return index if isinstance(index, int) else None


def _marks(report: dict[str, Any]) -> Marks:
    """The steps of a report."""
    step, second = (
        value if isinstance(value, int) and value >= 0 else None
        for value in (report.get("step"), report.get("second"))
    )
    return step, second


@dataclass(slots=True)
class _Selection:
    """What both sides know. Clicks made before the page last set a selection bear an old serial and lose."""

    given: Any
    """The argument of the last run."""
    pushed: Any
    """What the browser was last told."""
    current: Any
    serial: int = 0
    before: Any = None
    """What was selected before the last click."""
    read: Callable[[dict[str, Any]], Any] = _index

    def offer(self, given: Any, remounted: bool, renumbered: bool = False) -> None:
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
            self.before = self.current
            self.current = self.read(report)


def plan_view(
    panels: Sequence[Panel],
    *,
    palette: Sequence[tuple[str, str]],
    legend: Sequence[tuple[str, int]],
    selected: int | None,
    key: str,
    height: int = 520,
    on_select: Callable[[int | None], None] | None = None,
    marks: Marks = NO_MARKS,
    on_mark: Callable[[Marks], None] | None = None,
    find: Found | None = None,
    on_find: Callable[[str], None] | None = None,
    patterns: Sequence[int] | None = None,
    filters: Sequence[Filter] = (),
    on_filter: Callable[[str], None] | None = None,
    difference: Difference | None = None,
    rows: str = "",
    actions: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    on_action: Callable[[str, int], None] | None = None,
) -> ViewEvent:
    """Draw one to four plans side by side, linked: one memory scale, one zoom, one selection.

    `palette` holds (light, dark) CSS colours, `legend` (label, palette index), `height` is that of a row in
    CSS pixels. `selected` and `marks` (steps) are set whenever they differ from the last run's; otherwise
    what the reader did stands, so a page may pass back what it got. `on_select` and `on_mark` hear of it
    before the page runs again. `find` is what was searched for; `on_find` hears what is typed. All of this
    and the zoom, while the time axis lasts, survive reruns with the same `key`. Where the same rectangles
    get other row numbers, `rows` must change. Of more than 200,000 only those that can be seen travel.
    `actions` (name → label, help) are buttons beside a buffer's details; `on_action` hears name and buffer.

    For panels that are compared: `patterns` (a sum of PATTERNS for each colour) are drawn over the colours,
    `filters` are switches in the legend (`on_filter` hears a label), `difference` is a strip below. Raises
    ValueError for no panel, for more than four, and for a colour outside the palette."""
    _check(panels, palette, legend)
    selection = _selection(selected, key, rows)
    marked = _selection(marks, key, rows, "marks", _marks)
    shared: dict[str, Any] = {
        "key": key,
        "height": height,
        **_colours(palette, legend, patterns),
        **_kept(selection, marked),
        **_tools(find, filters, actions),
    }
    drawn = _drawn(panels, shared)
    # A component's attribute exists only when it has a callback.
    result = _renderer()(
        key=key,
        data=pack(drawn, shared, difference),
        on_selection_change=_hears(selection, key, "selection", on_select),
        on_marks_change=_hears(marked, key, "marks", on_mark),
        on_filter_change=_told(key, "filter", "label", on_filter, [each.label for each in filters]),
        on_find_change=_told(key, "find", "text", on_find),
        on_action_change=_acted(key, actions, on_action),
    )
    if "scene" in shared:
        _show_feed(panels, key, shared["scene"])
    selection.clicked(result.selection)
    marked.clicked(result.marks)
    return ViewEvent(selection.current, marked.current)


def _colours(
    palette: Sequence[tuple[str, str]], legend: Sequence[tuple[str, int]], patterns: Sequence[int] | None
) -> dict[str, Any]:
    return {
        "palette": [list(pair) for pair in palette],
        "legend": [[label, int(index)] for label, index in legend],
        "patterns": None if patterns is None else [int(pattern) for pattern in patterns],
    }


def _kept(selection: _Selection, marked: _Selection) -> dict[str, Any]:
    return {
        "selected": selection.pushed,
        "serial": selection.serial,
        "marks": marked.pushed,
        "marksSerial": marked.serial,
    }


def _tools(
    find: Found | None, filters: Sequence[Filter], actions: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    return {
        "find": None if find is None else asdict(find),
        "filters": [asdict(each) for each in filters] or None,
        "actions": [[name, *words] for name, words in actions.items()],
    }


def _selection(
    given: Any,
    key: str,
    rows: str,
    kind: str = "selection",
    read: Callable[[dict[str, Any]], Any] = _index,
) -> _Selection:
    """What is known of the selection (or the marks) of the chart called `key`, with the page's argument
    taken."""
    name = _MEMORY.format(key, kind)
    selection: _Selection = st.session_state.setdefault(name, _Selection(given, given, given, read=read))
    renumbered = st.session_state.setdefault(f"{name}:rows", rows) != rows
    st.session_state[f"{name}:rows"] = rows
    selection.offer(given, key not in st.session_state, renumbered)
    return selection


def _hears(
    selection: _Selection, key: str, name: str, tell: Callable[[Any], None] | None
) -> Callable[[], None]:
    """Take what the browser reports as `name`, before the page runs again."""

    def heard() -> None:
        selection.clicked(st.session_state[key].get(name))
        if tell:
            tell(selection.current)

    return heard


def _drawn(panels: Sequence[Panel], shared: dict[str, Any]) -> Sequence[Panel | Crop]:
    """What travels of the panels; where that is not all of them, `shared` gets the number of the scene."""
    if not is_large(panels):
        return panels
    crops = first_crops(panels, shared["selected"])
    shared["scene"] = scene_of(crops, shared)
    return crops


def _told(
    key: str,
    name: str,
    field: str,
    tell: Callable[[str], None] | None,
    known: Sequence[str] | None = None,
) -> Callable[[], None]:
    """Tell the page what the browser says once: the switch that was clicked, one of `known`, or the text that
    was typed."""

    def told() -> None:
        report = st.session_state[key].get(name)
        text = report.get(field) if isinstance(report, dict) else None
        if tell and isinstance(text, str) and (known is None or text in known):
            tell(text)

    return told


def _acted(
    key: str, actions: Mapping[str, tuple[str, str]], on_action: Callable[[str, int], None] | None
) -> Callable[[], None]:
    """Tell `on_action` which button was clicked, if it is one of `actions`."""

    def acted() -> None:
        report = st.session_state[key].get("action")
        name, buffer = (report.get("name"), report.get("buffer")) if isinstance(report, dict) else ("", None)
        if on_action and name in actions and isinstance(buffer, int):
            on_action(str(name), buffer)

    return acted


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
