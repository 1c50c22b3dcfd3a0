"""What our two solvers share: limits, and kernels that are loaded before the clock starts."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.families.adversarial import no_way_out
from benchmarks.solvers.protocol import Answer, Request
from benchmarks.solvers.question import timed
from memplan_engine.feasibility.decision import decide
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.strategies.base import SolveLimits


def limits_of(request: Request) -> SolveLimits:
    """The limits of the request."""
    return SolveLimits(request.seconds, request.seed, request.threads)


def run(solve: Callable[[], Plan]) -> Answer:
    """The plan of `solve` with its CPU time."""
    _load_kernels()
    loading = time.process_time()
    plan, spent = timed(solve)
    return Answer(plan.offsets.tolist(), plan.bound.nbytes, loading=loading, **spent)


def _load_kernels() -> None:
    """A problem that takes every part of the search: no order packs it to LOAD, which cannot be reached."""
    problem = no_way_out(2).problem
    make_plan(problem, "auto", limits=SolveLimits(1.0))
    for capacity in (5 << 16, 6 << 16, 7 << 16):
        decide(problem, capacity, limits=SolveLimits(1.0))
