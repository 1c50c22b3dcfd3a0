"""The table of a calibration: formulas by kind of op, and what they say of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from memplan_engine.analysis.workspaces import with_workspaces
from memplan_engine.calibration.fit_formula import Sum, evaluate
from memplan_engine.calibration.op_features import Features, graph_features
from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph
from memplan_engine.scope import Scope


@dataclass(frozen=True, slots=True)
class Formula:
    """What kernels of one `kind` take in one `regime`: the largest of `sums`, each a sum of whole multiples
    of the call's sizes. `low` and `high` are the smallest and the largest of each size that was measured.
    Errors are those of `Fitted`: of samples that the formula was not fitted to."""

    kind: str
    regime: str
    sums: tuple[Sum, ...]
    low: Mapping[str, int]
    high: Mapping[str, int]
    samples: int
    judged: int
    mean_error: float
    worst_error: float

    def covers(self, sizes: Mapping[str, int]) -> bool:
        """Whether a call of these sizes lies within what was measured."""
        return all(
            self.low.get(name, 0) <= nbytes <= self.high.get(name, 0) for name, nbytes in sizes.items()
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a calibration holds: `torch`'s version, its number of `threads`, and the instructions that its
    kernels use (`capability`: "AVX512")."""

    torch: str
    threads: int
    capability: str


@dataclass(frozen=True)
class Calibration:
    """The formulas of one machine."""

    machine: Machine
    formulas: tuple[Formula, ...]

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], Formula]:
        return {(formula.kind, formula.regime): formula for formula in self.formulas}

    def formula(self, found: Features) -> Formula | None:
        """The formula for a call; None where nothing like it was measured."""
        return self._by_key.get((found.kind, found.regime))

    def nbytes(self, found: Features) -> int:
        """What the kernel takes for itself, bytes; 0 where no formula is known."""
        formula = self.formula(found)
        return 0 if formula is None else min(evaluate(formula.sums, found.sizes), MAX_BYTES)

    def is_inside(self, found: Features) -> bool:
        """Whether a call lies within the shapes that were measured."""
        formula = self.formula(found)
        return formula is not None and formula.covers(found.sizes)


CALIBRATED = {
    Scope.GRAPH: Scope.WITH_KERNELS,
    Scope.WITH_TEMPORARIES: Scope.WITH_KERNELS,
    Scope.PREDICTED: Scope.PREDICTED_WITH_KERNELS,
}
"""What figures of a graph count once a calibration is laid over it."""


def with_kernels(graph: Graph, calibration: Calibration) -> Graph:
    """`graph` whose ops have as shared workspace, beside what they had, what their kernels take.

    Raises
    ------
    InputError: a graph of a real run, whose memory is known; one that a calibration lies over already.
    """
    scope = CALIBRATED.get(graph.scope)
    if scope is None:
        raise InputError(
            graph.name, "calibration", f"a graph of scope {graph.scope}", "one that was captured"
        )
    known = {op.name: op.workspace.shared for op in graph.ops}
    found = graph_features(graph, calibration.machine.threads)
    taken = {name: known[name] + calibration.nbytes(each) for name, each in found.items()}
    changed = {name: nbytes for name, nbytes in taken.items() if nbytes != known[name]}
    return replace(with_workspaces(graph, changed), scope=scope)
