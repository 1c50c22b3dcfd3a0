"""The browser side as Streamlit wants it: one script and one style sheet, from the files of frontend/."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from memplan_engine.plotting.bundling import CHART_MODULES, bundle

FRONTEND = Path(__file__).parent / "frontend"
PLAN_VIEW = Path(__file__).parents[1] / "plan_view" / "frontend"
MODULES = (
    *CHART_MODULES,
    PLAN_VIEW / "color.js",
    PLAN_VIEW / "element.js",
    FRONTEND / "dom.js",
    FRONTEND / "trace.js",
    FRONTEND / "geometry.js",
    FRONTEND / "paint.js",
    FRONTEND / "candidates.js",
    FRONTEND / "tree.js",
    FRONTEND / "picture.js",
    FRONTEND / "guess.js",
    FRONTEND / "attempt.js",
    FRONTEND / "side.js",
    FRONTEND / "player.js",
    FRONTEND / "learner.js",
    FRONTEND / "hand.js",
    FRONTEND / "view.js",
    FRONTEND / "main.js",
)
"""In this order no module runs code that needs a later one."""


@cache
def script() -> str:
    """The modules in one."""
    return bundle(MODULES)


@cache
def styles() -> str:
    """The style sheet."""
    return (FRONTEND / "replay_view.css").read_text("utf-8")
