"""Ours, deciding a capacity."""

from __future__ import annotations

from benchmarks.solvers.ours import limits_of, run
from benchmarks.solvers.protocol import Answer, Request
from benchmarks.solvers.question import to_problem
from memplan_engine.feasibility.decision import decide


def solve(request: Request) -> Answer:
    """The best plan and the bound of the decision."""
    return run(lambda: decide(to_problem(request), request.capacity, limits=limits_of(request)).plan)
