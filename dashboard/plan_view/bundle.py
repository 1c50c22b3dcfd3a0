"""The browser side as Streamlit wants it: one script and one style sheet, from the files of frontend/."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from memplan_engine.plotting.bundling import SHARED, bundle

FRONTEND = Path(__file__).parent / "frontend"
SHARED_MODULES = ("format.js", "ticks.js", "contrast.js", "columns.js")
MODULES = (
    "color.js",
    "element.js",
    "decode.js",
    "layers.js",
    "viewport.js",
    "layout.js",
    "raster.js",
    "patterns.js",
    "labels.js",
    "lines.js",
    "axes.js",
    "bands.js",
    "strip.js",
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
    return bundle([*(SHARED / name for name in SHARED_MODULES), *(FRONTEND / name for name in MODULES)])


@cache
def feed_script() -> str:
    """The modules of the feed in one."""
    return bundle(FRONTEND / name for name in FEED_MODULES)


@cache
def styles() -> str:
    """The style sheet."""
    return (FRONTEND / "plan_view.css").read_text("utf-8")
