"""CP-SAT minimising the arena, a variable above all buffers."""

from __future__ import annotations

from benchmarks.solvers.cp_sat import Model, ceiling
from benchmarks.solvers.protocol import Answer, Request


def solve(request: Request) -> Answer:
    """The best offsets, and the bound that the search proved."""
    model = Model(request, ceiling(request))
    arena = model.model.new_int_var(0, model.ceiling, "arena")
    for offset, size in zip(model.offsets, model.sizes, strict=True):
        model.model.add(offset + size <= arena)
    model.model.minimize(arena)
    solver, status, spent = model.solve(request)
    bound = model.unit * round(solver.best_objective_bound)
    return Answer(model.offsets_of(solver, status), bound, **spent)
