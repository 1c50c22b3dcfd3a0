"""The browser side as Streamlit wants it: one script and one style sheet, from the files of frontend/."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from memplan_engine.plotting.bundling import SHARED, unlinked

FRONTEND = Path(__file__).parent / "frontend"
PLAN_VIEW = Path(__file__).parents[1] / "plan_view" / "frontend"
MODULES = (
    SHARED / "format.js",
    SHARED / "ticks.js",
    SHARED / "contrast.js",
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

_CONSTANT = re.compile(r"^const ([A-Z][A-Z_]*) =", re.MULTILINE)


@cache
def script() -> str:
    """The modules in one. Constants that a module keeps to itself get its name: all share one scope."""
    return "\n".join(_module(path) for path in MODULES)


@cache
def styles() -> str:
    """The style sheet."""
    return (FRONTEND / "replay_view.css").read_text("utf-8")


def _module(path: Path) -> str:
    text = path.read_text("utf-8")
    # Before the exports are gone: those have one name everywhere.
    for name in _CONSTANT.findall(text):
        text = re.sub(rf"(?<![\w.]){name}\b(?!:)", f"{path.stem}_{name}", text)
    return unlinked(text)
