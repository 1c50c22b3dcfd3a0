"""A replay ends where its limits end, in the middle of what takes long."""

from __future__ import annotations

import numpy as np
import pytest

from memplan_engine import PlanError, make_problem, make_replay
from memplan_engine.kernels.shared_objects.assign import lay_out
from memplan_engine.replay import make
from memplan_engine.strategies.base import SolveLimits


def test_the_arena_step_by_step_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a replay that takes minutes: each step lays out the shared objects of 20,000 buffers again."""
    limits, laid_out = SolveLimits(), []

    def until_the_twentieth(order: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        laid_out.append(len(order))
        if len(laid_out) == 20:
            limits.cancel()
        return lay_out(order, *columns)

    monkeypatch.setattr(make, "lay_out", until_the_twentieth)
    problem = make_problem(range(100), range(3, 103), [64] * 100)
    with pytest.raises(PlanError, match="shared_objects_by_size was not recorded to its end"):
        make_replay(problem, "shared_objects_by_size", limits=limits)
    # All objects once, for the plan, and then those of the first 19 steps.
    assert laid_out == [100, *range(1, 20)]
