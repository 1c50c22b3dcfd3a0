"""What both forms of the CP-SAT model share: offsets in units, intervals in time and in bytes, no overlap."""

from __future__ import annotations

from math import gcd
from typing import Any

from ortools.sat.python import cp_model

from benchmarks.solvers.protocol import Request
from benchmarks.solvers.question import timed, to_problem
from memplan_engine.problem import cut


class Model:
    """Buffers that may go anywhere below `ceiling` units; a unit is `unit_of` bytes. What a buffer with gaps
    occupies between two of its changes is a rectangle of its own."""

    def __init__(self, request: Request, ceiling_bytes: int) -> None:
        self.model = cp_model.CpModel()
        self.unit = unit = unit_of(request)
        self.ceiling = ceiling_bytes // unit
        self.sizes = [size // unit for size in request.size]
        self.offsets = [self._offset(request, buffer) for buffer in range(len(self.sizes))]
        pieces = cut(to_problem(request))
        self.model.add_no_overlap_2d(
            [
                self.model.new_fixed_size_interval_var(start, end - start, "")
                for start, end in zip(pieces.start.tolist(), pieces.end.tolist(), strict=True)
            ],
            [
                self.model.new_fixed_size_interval_var(
                    self.offsets[owner] + low // unit, (high - low) // unit, ""
                )
                for owner, low, high in zip(
                    pieces.owner.tolist(), pieces.low.tolist(), pieces.high.tolist(), strict=True
                )
            ],
        )

    def _offset(self, request: Request, buffer: int) -> Any:
        """An offset in units: a multiple of the alignment, fixed where the request says so."""
        if request.fixed[buffer] >= 0:
            return self.model.new_constant(request.fixed[buffer] // self.unit)
        step = max(1, request.alignment[buffer] // self.unit)
        most = (self.ceiling - self.sizes[buffer]) // step
        return step * self.model.new_int_var(0, most, f"offset {buffer}")

    def solve(self, request: Request) -> tuple[Any, Any, dict[str, float]]:
        """The solver, its status and its seconds; building the model is not counted."""
        solver = cp_model.CpSolver()
        solver.parameters.catch_sigint_signal = False
        solver.parameters.max_time_in_seconds = request.seconds
        solver.parameters.num_workers = request.threads
        solver.parameters.random_seed = request.seed
        status, spent = timed(lambda: solver.solve(self.model))
        return solver, status, spent

    def offsets_of(self, solver: Any, status: int) -> list[int] | None:
        """Offsets in bytes where there is a solution."""
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return [self.unit * solver.value(offset) for offset in self.offsets]


def unit_of(request: Request) -> int:
    """The largest number of bytes that divides every size, alignment above 1, fixed offset and edge of a
    window: what is pushed down as far as it goes lies at a multiple of it."""
    alignments = [alignment for alignment in request.alignment if alignment > 1]
    windows = [edge for *_, low, high in request.gaps for edge in (low, high)]
    fixed = [offset for offset in request.fixed if offset >= 0]
    return gcd(*request.size, *alignments, *windows, *fixed) or 1


def tops(request: Request) -> list[int]:
    """How far up each buffer reaches at least, bytes."""
    return [max(offset, 0) + size for offset, size in zip(request.fixed, request.size, strict=True)]


def ceiling(request: Request) -> int:
    """Bytes that are enough for any problem: all buffers with their padding above all that are fixed."""
    padded = sum(size + a - 1 for size, a in zip(request.size, request.alignment, strict=True))
    return max(tops(request), default=0) + padded
