"""What the peak is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memplan_engine.analysis.buffer_names import buffer_names, op_names
from memplan_engine.analysis.claims import counted
from memplan_engine.analysis.provenance import Provenance, find_provenance, ops_at
from memplan_engine.graph import Op
from memplan_engine.problem import Problem
from memplan_engine.profile import (
    SUFFIX,
    bytes_at,
    held_bytes,
    live_at,
    load_of,
    scratching,
    workspace_of,
)
from memplan_engine.scope import Scope


@dataclass(frozen=True, slots=True)
class Contributor:
    """What holds bytes at the peak: a buffer's index, or None for what an op holds for itself; its name, the
    bytes that it holds there, where it comes from, and its name as people know it (`buffer_names`)."""

    buffer: int | None
    name: str
    nbytes: int
    provenance: Provenance
    label: str


@dataclass(frozen=True, slots=True)
class Peak:
    """The first step with the most live bytes, temporaries of its ops and other scratch included;
    `contributors`, largest first, sum to `nbytes`. `scope` says what is counted, `counted` so in words;
    `op_label` is the first of `ops` as people know it, "" without any."""

    step: int
    nbytes: int
    ops: tuple[Op, ...]
    contributors: tuple[Contributor, ...]
    scope: Scope
    counted: str
    op_label: str = ""

    @property
    def workspace_bytes(self) -> int:
        """What of `nbytes` the ops hold for themselves, beside the arena."""
        return sum(part.nbytes for part in self.contributors if part.buffer is None)


def find_peak(problem: Problem) -> Peak:
    """The peak of `problem`, by what its scope knows of."""
    load = load_of(problem)
    return contents_of(problem, held_bytes(problem, load.sections, load.live).peak_step)


def contents_of(problem: Problem, step: int) -> Peak:
    """Everything that is live at `step`, as for the peak."""
    provenances, labels = find_provenance(problem), buffer_names(problem)
    live = [
        Contributor(
            buffer,
            problem.names[buffer],
            bytes_at(problem, buffer, step),
            provenances[buffer],
            labels[buffer],
        )
        for buffer in live_at(problem, step).tolist()
    ]
    contributors = sorted([*live, *_scratch(problem, step)], key=lambda part: -part.nbytes)
    total = sum(contributor.nbytes for contributor in contributors)
    ops = ops_at(problem, step)
    label = op_names(problem)[ops[0].name] if ops else ""
    return Peak(step, total, ops, tuple(contributors), problem.scope, counted(problem), label)


def _scratch(problem: Problem, step: int) -> Iterator[Contributor]:
    """What the ops of `step` hold for themselves, and what is kept for single ops at every step."""
    is_seen = problem.scope in (Scope.WITH_TEMPORARIES, Scope.WITH_KERNELS)
    kind = "temporaries" if is_seen else "workspace"
    names = op_names(problem)
    for op, at in scratching(problem):
        if at == step:
            label = names[op.name] + SUFFIX
            yield Contributor(None, op.name + SUFFIX, op.workspace.shared, Provenance(kind, maker=op), label)
    if unique := workspace_of(problem).unique:
        name = "unique workspaces"
        yield Contributor(None, name, unique, Provenance("workspace"), name)
