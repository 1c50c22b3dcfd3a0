"""Every strategy where bytes and steps are as large as 64 bits hold: a plan that the checker takes, or an
error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memplan_engine import MemplanError, make_plan, make_problem
from memplan_engine.bounds import lower_bound
from memplan_engine.kernels.shared_objects.assign import _window
from memplan_engine.problem import Gap, Problem
from memplan_engine.strategies import BUILT_IN
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verify.validate import validate_plan

M = 2**63 - 1


def problems(m: int) -> dict[str, Problem]:
    """What can be made of numbers near `m`; a sum that is no number of 64 bits is refused when it is made."""
    given: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "one size": ([[0], [1], [m]], {}),
        "one end": ([[0], [m], [1]], {}),
        "one late": ([[m - 1], [m], [1]], {}),
        "one alignment": ([[0], [1], [1]], {"alignment": m}),
        "one fixed": ([[0], [1], [1]], {"fixed": [m - 1]}),
        "one of all": ([[0], [m], [m]], {"steps": m}),
        "two": ([[0, 0], [1, m], [m // 2, m // 2 - 1]], {}),
        "two apart": ([[0, m - 1], [1, m], [m // 2, m // 2 - 1]], {}),
        "two aligned": ([[0, 0], [m, 1], [3, 5]], {"alignment": [m // 8, 1]}),
        "two, one fixed": ([[0, 0], [2, m], [1, 1]], {"fixed": [m // 4, -1]}),
        "a gap": ([[0, 0], [m, m], [m // 4, 8]], {"gaps": {0: (Gap(1, m - 1, 0, m // 8),)}}),
        "some": ([range(6), [m - 6, m, 5, 6, 7, m], [m // 8, m // 16, m // 8, 1, m // 7, m // 9]], {}),
        "long": ([range(8), [m] * 4 + [m - i for i in range(4)], [m // 64] * 8], {}),
    }
    made = {}
    for name, (columns, more) in given.items():
        try:
            made[name] = make_problem(*columns, **more)
        except MemplanError:
            continue
    return made


@pytest.mark.parametrize("m", [M, M - 1, M // 2 + 1, 2**62 - 1])
@pytest.mark.parametrize("strategy", BUILT_IN)
def test_a_plan_or_an_error(strategy: str, m: int) -> None:
    found = problems(m)
    assert len(found) > 7
    for name, problem in found.items():
        try:
            plan = make_plan(problem, strategy, limits=SolveLimits(nodes=2_000))
        except MemplanError:
            continue
        assert validate_plan(plan).valid, name
        assert lower_bound(problem).nbytes <= plan.arena_bytes <= M, name


@pytest.mark.parametrize("last", [1, 5, 2**61, 2**62, 2**62 + 1, M])
def test_the_width_of_the_window_is_one_of_the_powers_of_two(last: int) -> None:
    width = _window(np.array([0, 0]), np.array([1, last]))
    assert width & (width - 1) == 0
    assert 1 <= width <= 2**62
