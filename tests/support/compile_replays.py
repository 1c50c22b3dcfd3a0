"""Compile the kernels of replays before the tests: the first test that needs them would wait for them."""

from __future__ import annotations

from memplan_engine.kernels.jit import compiled_only
from memplan_engine.problem import make_problem
from memplan_engine.replay.make import make_replay, replayable

PROBLEM = make_problem([0, 1, 2, 0], [3, 4, 5, 2], [8, 16, 8, 8], alignment=4)


def compile_replays() -> None:
    """Compile (or load from the cache) the kernels of every strategy that can be replayed."""
    with compiled_only():
        for name in replayable():
            make_replay(PROBLEM, name)
