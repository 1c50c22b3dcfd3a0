"""What a figure counts: which memory of a run is in it, and which is not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What the buffers of a problem, with the workspaces beside them, are all of.

    GRAPH: the storages of a graph. WITH_TEMPORARIES: also what the operators inside its ops make and let go.
    WITH_KERNELS: also what their kernels take for themselves, by a calibration. EAGER: all that one real run
    allocated. PREDICTED: all that an eager run allocates, by fake tensors; PREDICTED_WITH_KERNELS: and what
    its kernels take, by a calibration. UNCOMPILED: as PREDICTED, of a run that `torch.compile` compiles,
    which allocates something else; UNCOMPILED_WITH_KERNELS: as PREDICTED_WITH_KERNELS, of such a run. PART:
    what was recorded of one real run, which may have needed more. BUFFERS: the buffers somebody listed.
    """

    GRAPH = "graph"
    WITH_TEMPORARIES = "with_temporaries"
    WITH_KERNELS = "with_kernels"
    EAGER = "eager"
    PREDICTED = "eager_predicted"
    PREDICTED_WITH_KERNELS = "eager_predicted_with_kernels"
    UNCOMPILED = "eager_predicted_uncompiled"
    UNCOMPILED_WITH_KERNELS = "eager_predicted_uncompiled_with_kernels"
    PART = "eager_part"
    BUFFERS = "buffers"


OF_COMPILED_RUNS = frozenset({Scope.UNCOMPILED, Scope.UNCOMPILED_WITH_KERNELS})
"""Scopes of figures of the Python that `torch.compile` compiles."""
_COUNTED = {
    Scope.GRAPH: "the graph's storages; temporaries inside ops are unknown",
    Scope.WITH_TEMPORARIES: "the graph's storages and the temporaries inside its ops; an eager run "
    "may need more: kernel scratch, tensors that Python references keep alive",
    Scope.WITH_KERNELS: "the graph's storages, the temporaries inside its ops and, calibrated (by formulas "
    "fitted on one machine), what its kernels take; an eager run may need more: tensors that Python "
    "references keep alive",
    Scope.EAGER: "what one real run allocated",
    Scope.PREDICTED: "eager, predicted: what operators return in an eager run, by a run on fake tensors; "
    "scratch of kernels is not counted",
    Scope.PREDICTED_WITH_KERNELS: "eager, predicted: what operators return in an eager run, by a run on fake "
    "tensors, and, calibrated (by formulas fitted on one machine), what kernels take for themselves",
    Scope.UNCOMPILED: "eager, predicted, of a run that torch.compile compiles: what operators return in an "
    "eager run of its Python; the compiled run holds more or less",
    Scope.UNCOMPILED_WITH_KERNELS: "eager, predicted, of a run that torch.compile compiles: what operators "
    "return in an eager run of its Python and, calibrated (by formulas fitted on one machine), what kernels "
    "take for themselves; the compiled run holds more or less",
    Scope.PART: "what was recorded of one real run; the run may have needed more",
    Scope.BUFFERS: "the buffers listed",
}


@dataclass(frozen=True, slots=True)
class Basis:
    """What figures rest on besides their scope, in words.

    `notes` say what part of a run they are of, and what they leave out. `assumed` are values that a predicted
    run did not know, and what was taken for them; with `doubts`, some of these, a real run may hold something
    else. With `compiled` a graph is of Python that `torch.compile` compiles.
    """

    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    compiled: bool = False

    @property
    def assumed_words(self) -> tuple[str, ...]:
        """Return `assumed`, the `doubts` first, each with these words."""
        doubted = (f"{each} ({MAY_DIFFER})" for each in self.assumed if each in self.doubts)
        return (*doubted, *(each for each in self.assumed if each not in self.doubts))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return all of it in words, a clause each."""
        assumed = (f"assumed: {each}" for each in self.assumed_words)
        return (*self.notes, *(COMPILED,) * self.compiled, *assumed)


MAY_DIFFER = "a run may hold more or less"
COMPILED = "torch.compile compiles some of it, and the compiled run holds more or less"
NO_BASIS = Basis()


RUN_OF_GRAPH = (
    "what one real run of the captured graph allocated; a whole eager run needs more where Python "
    "references keep tensors alive (memplan observe)"
)
"""What is measured of a run inside its plan."""


def scope_words(scope: Scope) -> str:
    """What is counted, in plain words."""
    return _COUNTED[scope]


def scope_summary(scope: Scope, counted: str = "") -> dict[str, str]:
    """The scope of figures as every `--json` has it; `counted` in words of their own where there are some."""
    return {"scope": str(scope), "counted": counted or scope_words(scope)}


def assumed_summary(basis: Basis) -> dict[str, list[str]]:
    """What figures assume, as every `--json` has it."""
    return {"assumed": list(basis.assumed), "doubts": list(basis.doubts)}
