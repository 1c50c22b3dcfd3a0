"""Mounting the replay as a Streamlit v2 component; its script and style sheet come from frontend/."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from streamlit.components.v2.types import ComponentRenderer

from memplan_engine import Replay, replay_summary
from memplan_engine.plotting.bundling import CHART_MODULES, bundle
from memplan_engine.problem import cut
from memplan_engine.replay.by_hand import Exercise

FRONTEND = Path(__file__).parent / "frontend"
PLAN_VIEW = Path(__file__).parents[1] / "plan_view" / "frontend"
MODULES = (
    *CHART_MODULES,
    PLAN_VIEW / "color.js",
    PLAN_VIEW / "element.js",
    FRONTEND / "dom.js",
    FRONTEND / "placed_table.js",
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
    FRONTEND / "finder.js",
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
    """The style sheets in one."""
    return "".join(
        file.read_text("utf-8") for file in (FRONTEND / "replay_view.css", PLAN_VIEW / "unseen.css")
    )


def replay_view(
    message: bytes,
    *,
    serial: int,
    key: str,
    on_step: Callable[[int], None],
    on_answer: Callable[[int], None] = lambda step: None,
) -> None:
    """Show a message of `make_message`; `on_step` hears, after a pause, at which step (0 …) the reader is,
    `on_answer` at which one a prediction was answered, −1 for the optimum reached by hand.

    Nothing is drawn anew while the message stays the same, so that the page may run as often as it likes.
    Reports of a message with another `serial` are left out: the page has gone on since.
    """

    def hears(name: str, take: Callable[[int], None]) -> Callable[[], None]:
        def heard() -> None:
            report = st.session_state[key].get(name)
            if isinstance(report, dict) and report.get("serial") == serial:
                step = report.get("step")
                if isinstance(step, int):
                    take(step)

        return heard

    moved, answered = hears("step", on_step), hears("answered", on_answer)
    _renderer()(key=key, data=message, on_step_change=moved, on_answered_change=answered)


@cache
def _renderer() -> ComponentRenderer:
    return st.components.v2.component("memplan.replay_view", css=styles(), js=script())


class Mode(StrEnum):
    """What the reader does with a replay."""

    REPLAY = "replay"
    PREDICT = "predict"
    EXERCISE = "exercise"
    ORDER = "order"
    KEEP = "keep"


def trace_json(replay: Replay) -> bytes:
    """All of a replay: the engine's own columns, and what is drawn of each buffer.

    Beside `replay_summary`: `pieces` (the rectangles of a buffer with gaps), `alignment` and `fixed` (−1 for
    free), one value a buffer; `time_steps`, how many steps there are.
    """
    plan, pieces = replay.plan, cut(replay.problem)
    columns = replay_summary(replay)
    columns["buffers"]["offset"] = plan.offsets.tolist()
    return _encode(
        {
            **columns,
            "pieces": {
                key: getattr(pieces, key).tolist() for key in ("owner", "start", "end", "low", "high")
            },
            "alignment": replay.problem.alignment.tolist(),
            "fixed": replay.problem.fixed.tolist(),
            "time_steps": replay.problem.steps,
        }
    )


def exercise_values(exercise: Exercise, key: str) -> dict[str, Any]:
    """What a placement by hand is measured against, bytes; `key` tells one exercise from another."""
    rival = exercise.rival
    return {
        "key": key,
        "bound": exercise.bound_bytes,
        "optimum": exercise.optimum_bytes,
        "rival": rival
        and {
            "strategy": rival.strategy,
            "bytes": rival.arena_bytes,
            "offsets": rival.offsets.tolist(),
        },
    }


def make_message(
    trace: bytes,
    *,
    mode: Mode,
    step: int,
    serial: int,
    color: NDArray[np.uint8],
    palette: Sequence[tuple[str, str]],
    exercise: dict[str, Any] | None = None,
) -> bytes:
    """`trace` with what the page says of it: the mode, the step (0 …) to begin at and the colours."""
    view = {
        "mode": str(mode),
        "step": step,
        "serial": serial,
        "color": color.tolist(),
        "palette": [list(pair) for pair in palette],
        "exercise": exercise,
    }
    return b'{"view":' + _encode(view) + b',"trace":' + trace + b"}"


def _encode(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
