"""A problem as a request, and back; and the clock of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from benchmarks.families.instance import Instance
from benchmarks.solvers.protocol import Request
from memplan_engine.problem import Gap, Problem, make_problem

Result = TypeVar("Result")


def request_of(instance: Instance, seconds: float, **limits: int | str) -> Request:
    """The question about `instance` within `seconds` and `limits`, which are fields of a Request."""
    problem = instance.problem
    names = ("start", "end", "size", "alignment", "fixed")
    columns = {name: getattr(problem, name).tolist() for name in names}
    gaps = [[row, gap.start, gap.end, gap.low, gap.high] for row, own in problem.gaps.items() for gap in own]
    bounds = {"capacity": instance.capacity, "lower_bound": instance.lower_bound}
    return Request(**columns, gaps=gaps, **bounds, seconds=seconds, **limits)


def to_problem(request: Request) -> Problem:
    """The buffers of a request as a Problem."""
    gaps: dict[int, tuple[Gap, ...]] = {}
    for row, *gap in request.gaps:
        gaps[row] = (*gaps.get(row, ()), Gap(*gap))
    columns = (np.array(column, dtype=np.int64) for column in (request.start, request.end, request.size))
    return make_problem(*columns, alignment=request.alignment, fixed=request.fixed, gaps=gaps)


def timed(call: Callable[[], Result]) -> tuple[Result, dict[str, float]]:
    """What `call` gives, and its `cpu` and `wall` seconds, as fields of an Answer."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return result, {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
