"""A replay of as many buffers as there may be ends when its time does."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest

from memplan_engine import MemplanError, make_problem
from memplan_engine.replay.make import MOST_BUFFERS, make_replay
from memplan_engine.strategies import known_strategies
from memplan_engine.strategies.base import SolveLimits

LIMIT = 2.0
LATE = 8.0
"""CPU seconds behind the limit in which nothing is asked: columns are sorted and frozen."""


@pytest.mark.quarantine
@pytest.mark.slow
@pytest.mark.parametrize("strategy", known_strategies())
def test_the_largest_replay_ends_with_its_time(strategy: str) -> None:
    draw = np.random.default_rng(0)
    start = draw.integers(0, 400, MOST_BUFFERS)
    end = start + draw.integers(1, 200, MOST_BUFFERS)
    problem = make_problem(start, end, draw.integers(1, 1 << 20, MOST_BUFFERS))
    begin = time.process_time()
    with contextlib.suppress(MemplanError):
        make_replay(problem, strategy, limits=SolveLimits(LIMIT))
    assert time.process_time() - begin < LIMIT + LATE
