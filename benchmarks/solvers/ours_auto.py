"""Ours, minimising: strategy `auto`."""

from __future__ import annotations

from benchmarks.solvers.ours import limits_of, run
from benchmarks.solvers.protocol import Answer, Request
from benchmarks.solvers.question import to_problem
from memplan_engine.planner import make_plan


def solve(request: Request) -> Answer:
    """The plan that `make_plan` gives, which it has validated."""
    return run(lambda: make_plan(to_problem(request), "auto", limits=limits_of(request)))
