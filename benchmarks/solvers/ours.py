"""What our two solvers share: problem, budget, and kernels that are loaded before the clock starts."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.families.adversarial import no_way_out
from benchmarks.solvers.protocol import Answer, Request
from memplan_engine.decision import decide
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.problem import Problem, make_problem
from memplan_engine.strategies.budget import Budget


def to_problem(request: Request) -> Problem:
    """The buffers as a Problem; its time counts as ours."""
    return make_problem(*(np.array(column) for column in (request.start, request.end, request.size)))


def budget_of(request: Request) -> Budget:
    """The limits of the request."""
    return Budget(request.seconds, request.seed, request.threads)


def run(solve: Callable[[], Plan]) -> Answer:
    """The plan of `solve` with its CPU time."""
    _load_kernels()
    before = time.process_time()
    plan = solve()
    cpu = time.process_time() - before
    return Answer(plan.offsets.tolist(), plan.bound.nbytes, cpu=cpu, loading=before)


def _load_kernels() -> None:
    """A problem that takes every part of the search: no order packs it to LOAD, which cannot be reached."""
    problem = no_way_out(2).problem
    make_plan(problem, "auto", budget=Budget(1.0))
    for capacity in (5 << 16, 6 << 16, 7 << 16):
        decide(problem, capacity, budget=Budget(1.0))
