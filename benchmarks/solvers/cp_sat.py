"""What both forms of the CP-SAT model share: offsets in units, intervals in time and in bytes, no overlap."""

from __future__ import annotations

import time
from math import gcd
from typing import Any

from ortools.sat.python import cp_model

from benchmarks.solvers.protocol import Request


class Model:
    """Buffers that may go anywhere below `ceiling` units of `unit` bytes, which divide all sizes."""

    def __init__(self, request: Request, ceiling_bytes: int, unit: int) -> None:
        self.model = cp_model.CpModel()
        self.unit, self.ceiling = unit, ceiling_bytes // unit
        self.sizes = [size // unit for size in request.size]
        self.offsets = [
            self.model.new_int_var(0, self.ceiling - size, f"offset {place}")
            for place, size in enumerate(self.sizes)
        ]
        lives = zip(request.start, request.end, strict=True)
        in_time = [self.model.new_fixed_size_interval_var(a, b - a, "") for a, b in lives]
        placed = zip(self.offsets, self.sizes, strict=True)
        in_bytes = [self.model.new_fixed_size_interval_var(low, size, "") for low, size in placed]
        self.model.add_no_overlap_2d(in_time, in_bytes)

    def solve(self, request: Request) -> tuple[Any, int, float]:
        """The solver, its status and its CPU seconds; building the model is not counted."""
        solver = cp_model.CpSolver()
        solver.parameters.catch_sigint_signal = False
        solver.parameters.max_time_in_seconds = request.seconds
        solver.parameters.num_workers = request.threads
        solver.parameters.random_seed = request.seed
        before = time.process_time()
        status = solver.solve(self.model)
        return solver, status, time.process_time() - before

    def offsets_of(self, solver: Any, status: int) -> list[int] | None:
        """Offsets in bytes where there is a solution."""
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return [self.unit * solver.value(offset) for offset in self.offsets]


def unit_of(request: Request) -> int:
    """The largest number of bytes that divides every size."""
    return gcd(*request.size) or 1
