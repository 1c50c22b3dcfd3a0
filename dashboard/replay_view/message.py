"""A replay as the JSON that the browser reads once; scrubbing asks for nothing more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memplan_engine import Replay, replay_summary
from memplan_engine.problem import cut
from memplan_engine.replay.by_hand import Exercise


class Mode(StrEnum):
    """What the reader does with a replay."""

    REPLAY = "replay"
    PREDICT = "predict"
    EXERCISE = "exercise"


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
    greedy = exercise.greedy
    return {
        "key": key,
        "bound": exercise.bound_bytes,
        "optimum": exercise.optimum_bytes,
        "greedy": {
            "strategy": greedy.strategy,
            "bytes": greedy.arena_bytes,
            "offsets": greedy.offsets.tolist(),
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
    """`trace` with what the page says of it: the mode, the step (0 …) to begin at, and the colours."""
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
