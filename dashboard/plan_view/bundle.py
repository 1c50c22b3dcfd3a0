"""The browser side as Streamlit wants it: one script and one style sheet, from the files of frontend/."""

from __future__ import annotations

from functools import cache
from pathlib import Path

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
