"""Predicted against measured: live bytes of a program's ops as planned, as dispatched, and as allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from memplan_engine.analysis.workspaces import predicted_live, with_workspaces
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.problem import Ints
from memplan_engine.recordings.observation import Level, LiveBytes, Observation, observed_live
from memplan_engine.runtime.observer.observe_run import observe_inputs
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.trial.equality import (
    Equality,
    compare_results,
    locate,
    restoring,
    written_tensors,
)
from memplan_engine.scope import Scope
from memplan_engine.torch_capture.capture_module import as_given

EAGER, INTERPRETER = "eager", "interpreter"


@dataclass(frozen=True, slots=True)
class Taker:
    """An op that holds memory for itself while it runs: `nbytes` in all as the allocator saw it, of which
    operators inside it make `inside` (predicted), the rest is its kernels' own."""

    op: str
    kind: str
    nbytes: int
    inside: int


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """One run laid over its prediction. The three curves are live bytes during each op of `graph`, int64
    arrays of n: `predicted` by lifetimes and by what operators inside an op make, `dispatch` by the storages
    that torch's dispatcher saw, `allocator` by what was asked of the allocator. All count what the graph
    makes and returns; inputs and weights are the caller's.

    `graph` is the program's, whose ops have their predicted temporaries as shared workspaces; `observation`
    is the run itself; `equality` says whether the result is that of the reference.
    """

    graph: Graph
    predicted: Ints
    dispatch: Ints
    allocator: Ints
    temporary: Ints
    observation: Observation
    equality: Equality

    @property
    def predicted_peak(self) -> int:
        """Bytes."""
        return int(self.predicted.max(initial=0))

    @property
    def dispatch_peak(self) -> int:
        """Bytes."""
        return int(self.dispatch.max(initial=0))

    @property
    def allocator_peak(self) -> int:
        """Bytes."""
        return int(self.allocator.max(initial=0))

    @property
    def difference(self) -> int:
        """Measured (dispatch level) − predicted bytes at the peak; 0 when the plan's claim is a fact."""
        return self.dispatch_peak - self.predicted_peak

    @property
    def differing(self) -> tuple[str, ...]:
        """The ops during which predicted and dispatched bytes are not the same."""
        rows = (self.predicted != self.dispatch).nonzero()[0].tolist()
        return tuple(self.graph.ops[row].name for row in rows)

    @property
    def takers(self) -> tuple[Taker, ...]:
        """The ops that hold memory for themselves, the largest first."""
        takers = [
            Taker(op.name, op.kind, nbytes, min(op.workspace.shared, nbytes))
            for op, nbytes in zip(self.graph.ops, self.temporary.tolist(), strict=True)
            if nbytes
        ]
        return tuple(sorted(takers, key=lambda taker: -taker.nbytes))


def compare_run(
    program: Program,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    eager: Callable[..., Any] | None = None,
    stacks: bool = False,
    seed: int = 0,
) -> Measured:
    """Run the program once with an observer and lay what it saw over what is predicted.

    The result is compared with `eager(*args, **kwargs)`, the model itself, say, run without gradients, or,
    without `eager`, with torch's interpreter of fx graphs; where it is not the same, both run once more to
    find the first op that differs. Every run starts from the same random `seed`, weights and inputs: what a
    run writes in place is put back. `stacks` keeps lines of Python in the observation.

    Raises
    ------
    InputError: inputs other than those captured; a profiler that is running already.
    """
    kwargs = dict(kwargs or {})
    inputs = program.inputs(args, kwargs)

    def reference() -> Any:
        return reference_of(program, eager, args, kwargs)

    with restoring(written_tensors(program, inputs), seed) as restore, torch.no_grad():
        restore()
        expected = reference()
        restore()
        observation, _ = observe_inputs(program, inputs, stacks=stacks)
        restore()
        # Not what was observed: some operators take another kernel while somebody watches (eigvalsh does).
        result = program.run(args, kwargs)
        equality = compare_results(expected, result, INTERPRETER if eager is None else EAGER)
        del expected, result
        if not equality.exact:
            equality = locate(equality, program, inputs, reference, restore)
    return measured_of(program, observation, equality)


def reference_of(
    program: Program, eager: Callable[..., Any] | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """What `eager(*args, **kwargs)` gives without gradients, or, where there is none, torch's interpreter."""
    if eager is None:
        return program.interpret(args, kwargs)
    places, names = as_given((tuple(args), dict(kwargs)))
    with torch.no_grad():
        return eager(*places, **names)


def predict_temporaries(program: Program) -> dict[str, int]:
    """For each op of the program's graph that needs any, the bytes that it holds at its fullest moment beside
    its inputs and outputs: what the operators inside it make, as capturing saw it. What kernels take for
    themselves only a real run can tell: see `learn_workspaces`."""
    return {op.name: op.workspace.shared for op in program.graph.ops if op.workspace.shared}


def measured_of(program: Program, observation: Observation, equality: Equality) -> Measured:
    """`observation`, of a run of `program` at both levels, off the prediction. Raises InputError for an
    observation of something else."""
    graph = program.graph
    _check_ops(graph, observation)
    dispatch, allocator = (observed_live(observation, level) for level in (Level.DISPATCH, Level.ALLOCATOR))
    return Measured(
        graph,
        predicted_live(graph),
        dispatch.during,
        allocator.during,
        allocator.temporary,
        observation,
        equality,
    )


def learn_workspaces(seen: Measured | Observation, graph: Graph) -> Graph:
    """`graph` whose ops have as shared workspace what each was seen to hold for itself in a run: what
    operators inside it make, and what kernels take. `predicted_live` of it then is what the allocator saw.

    `seen` is a run of the program that `graph` is of; of an observation without the allocator level only
    storages are known. Its scope is EAGER.

    Raises
    ------
    InputError: an observation of other ops than the graph's.
    """
    observation = seen.observation if isinstance(seen, Measured) else seen
    _check_ops(graph, observation)
    live: LiveBytes = observed_live(observation)
    names = [op.name for op in graph.ops]
    learnt = with_workspaces(graph, dict(zip(names, live.temporary.tolist(), strict=True)))
    return replace(learnt, scope=Scope.EAGER)


def _check_ops(graph: Graph, observation: Observation) -> None:
    names = tuple(op.name for op in graph.ops)
    if names == observation.ops.names:
        return
    pairs = zip(names, observation.ops.names, strict=False)
    difference = next((f"op {two!r} for {one!r}" for one, two in pairs if one != two), None)
    found = difference or f"{len(observation.ops)} ops for {len(names)}"
    raise InputError(observation.name, "ops", found, f"an observed run of the program {graph.name}")
