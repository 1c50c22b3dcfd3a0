"""The table of a calibration: formulas by kind of op, and what they say of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from memplan_engine.analysis.workspaces import with_workspaces
from memplan_engine.calibration.fit_formula import Sum, evaluate
from memplan_engine.calibration.known_calls import ARGUMENTS, tensors_text
from memplan_engine.calibration.op_features import Features, features, graph_tensors
from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph
from memplan_engine.scope import Scope


@dataclass(frozen=True, slots=True)
class Formula:
    """What kernels of one `kind` take in one `regime`: the largest of `sums`, each a sum of whole multiples
    of the call's sizes. `low` and `high` are the smallest and the largest of each size that was measured.
    Errors are shares of all that an op holds, of `judged` calls that the formula was not fitted to: the mean,
    the worst, and `error`, within which at least 95 % of further calls are (None where too few were measured
    to say, and in tables of version 1). Where fewer than 19 calls are its own, `error` is of them together
    with others of their kind, or of all such kinds, and never less than the worst of its own."""

    kind: str
    regime: str
    sums: tuple[Sum, ...]
    low: Mapping[str, int]
    high: Mapping[str, int]
    samples: int
    judged: int
    mean_error: float
    worst_error: float
    error: float | None = None

    def covers(self, sizes: Mapping[str, int]) -> bool:
        """Whether a call of these sizes lies within what was measured."""
        # Of sizes that an older table does not have, nothing is asked.
        return all(low <= sizes.get(name, 0) <= self.high[name] for name, low in self.low.items())


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a calibration holds: `torch`'s version, its number of `threads`, the instructions that its
    kernels use (`capability`: "AVX512"), and the `processor` (family, model and stepping; "" where that is
    not known), by whose caches oneDNN cuts its work."""

    torch: str
    threads: int
    capability: str
    processor: str = ""

    def unlike(self, other: Machine) -> str:
        """In words, what may have kernels take something else here than on `other`; "" for nothing."""
        pairs = [
            (f"{self.threads} threads", f"{other.threads}"),
            (self.capability, other.capability),
            # Tables of version 1 do not have it.
            (self.processor, other.processor) if self.processor and other.processor else ("", ""),
        ]
        return ", ".join(
            f"{mine} instead of {theirs}" for mine, theirs in pairs if not mine.startswith(theirs)
        )


@dataclass(frozen=True)
class Calibration:
    """What was measured on one machine: `formulas`, and `calls` that were measured themselves, each by its
    text (`known_calls`) with the bytes that its kernels took."""

    machine: Machine
    formulas: tuple[Formula, ...]
    calls: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], Formula]:
        return {(formula.kind, formula.regime): formula for formula in self.formulas}

    @cached_property
    def _by_tensors(self) -> dict[str, int | None]:
        """What calls of the same tensors took; None where that depends on other arguments."""
        found: dict[str, int | None] = {}
        for text, nbytes in self.calls.items():
            tensors = text.rpartition(ARGUMENTS)[0] if ARGUMENTS in text else text
            found[tensors] = nbytes if found.get(tensors, nbytes) == nbytes else None
        return found

    def of_tensors(self, text: str) -> int | None:
        """What calls by these tensors took, whatever their other arguments were; None where none was
        measured, and where two differ."""
        return self._by_tensors.get(text)

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
    Scope.UNCOMPILED: Scope.UNCOMPILED_WITH_KERNELS,
}
"""What figures of a graph count once a calibration is laid over it."""


def with_kernels(graph: Graph, calibration: Calibration) -> Graph:
    """`graph` whose ops have as shared workspace, beside what they had, what their kernels take. Of a graph
    no arguments but tensors are known: a call that was measured itself is found by these.

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
    taken: dict[str, int] = {}
    for name, (kind, inputs, outputs) in graph_tensors(graph).items():
        exact = calibration.of_tensors(tensors_text(kind, inputs, outputs))
        if exact is None:
            exact = calibration.nbytes(features(kind, inputs, outputs, calibration.machine.threads))
        if exact:
            taken[name] = known[name] + exact
    return replace(with_workspaces(graph, taken), scope=scope)
