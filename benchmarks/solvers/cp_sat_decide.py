"""CP-SAT with the arena fixed: offsets end at the capacity, and there is nothing to minimise."""

from __future__ import annotations

from ortools.sat.python import cp_model

from benchmarks.solvers.cp_sat import Model, tops
from benchmarks.solvers.protocol import Answer, Request


def solve(request: Request) -> Answer:
    """Offsets within the capacity, or the claim that there are none."""
    if max(tops(request), default=0) > request.capacity:
        return Answer(denied=True)
    model = Model(request, request.capacity)
    solver, status, spent = model.solve(request)
    return Answer(model.offsets_of(solver, status), denied=status == cp_model.INFEASIBLE, **spent)
