"""The browser side as Streamlit wants it: one script and one style sheet, from the files of frontend/."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from memplan_dashboard.bundling import unlinked

FRONTEND = Path(__file__).parent / "frontend"
MODULES = (
    "format.js",
    "ticks.js",
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
    return "\n".join(unlinked(_read(name)) for name in MODULES)


@cache
def feed_script() -> str:
    """The modules of the feed in one."""
    return "\n".join(unlinked(_read(name)) for name in FEED_MODULES)


@cache
def styles() -> str:
    """The style sheet."""
    return _read("plan_view.css")


def _read(name: str) -> str:
    return (FRONTEND / name).read_text("utf-8")
