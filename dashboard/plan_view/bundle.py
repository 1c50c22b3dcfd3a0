"""The browser side as Streamlit wants it: one script and one style sheet, from the files of frontend/."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FRONTEND = Path(__file__).parent / "frontend"
MODULES = (
    "format.js",
    "ticks.js",
    "color.js",
    "decode.js",
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
    "chart.js",
    "main.js",
)
"""In this order no module runs code that needs a later one."""

_IMPORT = re.compile(r"^import .*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def script() -> str:
    """The modules in one: a component is imported from a blob URL, where relative imports lead nowhere."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _read(name))) for name in MODULES)


@cache
def styles() -> str:
    """The style sheet."""
    return _read("plan_view.css")


def _read(name: str) -> str:
    return (FRONTEND / name).read_text("utf-8")
