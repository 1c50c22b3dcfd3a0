"""Training graphs, whose ops have phases: what the forward pass saves for the backward pass, when each phase
runs, and what recomputation changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from memplan_engine.analysis.peak import find_peak
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Phase, Role
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import Problem
from memplan_engine.profile import load_of
from memplan_engine.schedule import Schedule

RECOMPUTED = "recompute."
"""How the name of an op begins that runs an op of the forward pass again; the rest is that op's name."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A storage that the forward pass saves for the backward pass; `nbytes` bytes."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The most live bytes of buffers at a step of `phase`, and the first such step; the phase has `steps`."""

    phase: Phase
    steps: int
    peak_bytes: int
    peak_step: int


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """What one training graph needs: the bytes saved at the end of the forward pass, and the peak of the live
    bytes, with the step and the phase of the first op at which it is reached. Inputs and constants are not
    counted."""

    saved_bytes: int
    peak_bytes: int
    peak_step: int
    peak_phase: Phase | None


@dataclass(frozen=True, slots=True)
class MinCutDifference:
    """What the min-cut partition of a training graph changes against the default one.

    Storages and ops are matched by their names, which AOTAutograd gives alike to both. `only_default` and
    `only_min_cut` are saved in one of the two, largest first. `recomputed` are the ops that min-cut runs
    again in the backward pass, `recomputed_by_default` those that the default partition does, by the names
    they have in the forward pass; `moved_to_backward` run in the forward pass of the default partition, and
    in the backward pass alone of min-cut.
    """

    default: TrainingMemory
    min_cut: TrainingMemory
    only_default: tuple[Saved, ...]
    only_min_cut: tuple[Saved, ...]
    recomputed: tuple[str, ...]
    recomputed_by_default: tuple[str, ...]
    moved_to_backward: tuple[str, ...]


def is_training(graph: Graph) -> bool:
    """Whether the ops of `graph` have phases."""
    return any(op.phase for op in graph.ops)


def has_optimizer(graph: Graph) -> bool:
    """Whether `graph` is a whole training step, with what its optimizer does."""
    return any(op.phase is Phase.OPTIMIZER for op in graph.ops)


def saved_activations(graph: Graph) -> tuple[str, ...]:
    """The storages that a FORWARD op makes and a BACKWARD op reads, in the order in which they are made.

    Reading a view of a storage is reading the storage. Inputs and constants are not among them: they are
    there anyway.
    """
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    external = {storage.name for storage in graph.storages if storage.role in (Role.INPUT, Role.CONSTANT)}
    phase_of: dict[str, Phase | None] = {}
    read: set[str] = set()
    for op in graph.ops:
        for name in op.outputs:
            phase_of.setdefault(home[name], op.phase)
        if op.phase is Phase.BACKWARD:
            read.update(home[name] for name in (*op.inputs, *op.mutates))
    return tuple(
        name
        for name, phase in phase_of.items()
        if phase is Phase.FORWARD and name in read and name not in external
    )


def fullest_moment(spans: Mapping[str, tuple[int, int]], nbytes: Mapping[str, int]) -> frozenset[str]:
    """Return which storages are live together at the first moment with most bytes, given the places of the
    first and the last op of each."""
    change: Counter[int] = Counter()
    for name, (first, last) in spans.items():
        change[first] += nbytes[name]
        change[last + 1] -= nbytes[name]
    live = most = fullest = 0
    for place in sorted(change):
        live += change[place]
        if live > most:
            most, fullest = live, place
    return frozenset(name for name, (first, last) in spans.items() if first <= fullest <= last)


def phase_steps(graph: Graph, schedule: Schedule) -> dict[Phase, tuple[tuple[int, int], ...]]:
    """The half-open ranges of steps in which ops of each phase run, in order; phases without ops are left
    out.

    A range goes on over steps at which no op of any phase runs. Where streams run ops of two phases at one
    step, that step is in the ranges of both.
    """
    phases: dict[int, set[Phase]] = {}
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        if op.phase is not None:
            phases.setdefault(step, set()).add(op.phase)
    ranges: dict[Phase, list[tuple[int, int]]] = {}
    before: set[Phase] = set()
    for step in sorted(phases):
        for phase in phases[step]:
            spans = ranges.setdefault(phase, [])
            start = spans.pop()[0] if phase in before else step
            spans.append((start, step + 1))
        before = phases[step]
    return {phase: tuple(ranges[phase]) for phase in Phase if phase in ranges}


def phase_peaks(problem: Problem) -> tuple[PhasePeak, ...]:
    """The peak of each phase in which ops of the graph behind `problem` run, in order.

    Raises
    ------
    InputError: no graph, or one whose ops have no phases.
    """
    origin = problem.origin
    if origin is None or not is_training(origin.graph):
        found = "buffers without a graph" if origin is None else "ops without phases"
        raise InputError(problem.name, "", found, "a training graph, whose ops have phases")
    load, peaks = load_of(problem), []
    for phase, spans in phase_steps(origin.graph, origin.schedule).items():
        tops = [load.fullest(start, end - 1) for start, end in spans]
        top = max(tops, key=load.at)
        peaks.append(PhasePeak(phase, sum(end - start for start, end in spans), load.at(top), top))
    return tuple(peaks)


def saved_storages(graph: Graph) -> tuple[Saved, ...]:
    """The storages of `saved_activations` that are there at once, the largest first. A run of several passes
    saves some in each."""
    return tuple(sorted(_saved(graph), key=lambda saved: -saved.nbytes))


def training_memory(graph: Graph) -> TrainingMemory:
    """What `graph` needs when its ops run one at a time, without alignment.

    Raises
    ------
    InputError: a graph without forward or backward ops.
    """
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        if not any(op.phase is phase for op in graph.ops):
            raise InputError(
                graph.name, "ops", f"none of phase {phase}", "a training graph, whose ops have phases"
            )
    peak = find_peak(to_problem(graph, alignment=1))
    return TrainingMemory(
        sum(saved.nbytes for saved in _saved(graph)), peak.nbytes, peak.step, graph.ops[peak.step].phase
    )


def min_cut_difference(default: Graph, min_cut: Graph) -> MinCutDifference:
    """Compare the joint graphs of one model under AOTAutograd's two partitions.

    Raises
    ------
    InputError: a graph without forward or backward ops; graphs of two models, whose constants differ.
    """
    mine, theirs = _parameters(default), _parameters(min_cut)
    if mine != theirs:
        other = sorted(set(mine.items()) ^ set(theirs.items()))[0][0]
        found = f"other parameters than those of {default.name}: {other!r} differs"
        raise InputError(min_cut.name, "constants", found, "the same model")
    saved, saved_min = _saved(default), _saved(min_cut)
    forward = {op.name for op in default.ops if op.phase is Phase.FORWARD}
    backward = [op for op in min_cut.ops if op.phase is Phase.BACKWARD]
    return MinCutDifference(
        training_memory(default),
        training_memory(min_cut),
        _only(saved, saved_min),
        _only(saved_min, saved),
        recomputed_ops(min_cut),
        recomputed_ops(default),
        tuple(op.name for op in backward if op.name in forward),
    )


def _parameters(graph: Graph) -> dict[str, int]:
    """The bytes of each parameter by name; other constants (of the trace, not of the model) are left out."""
    nbytes = {storage.name: storage.nbytes for storage in graph.storages}
    return {name: nbytes[name] for name in graph.constants if name in nbytes and name.startswith("p_")}


def recomputed_ops(graph: Graph) -> tuple[str, ...]:
    """The FORWARD ops that BACKWARD ops run again, by the names they have in the forward pass."""
    forward = {op.name for op in graph.ops if op.phase is Phase.FORWARD}
    return tuple(name for op in graph.ops if (name := _repeats(op)) in forward)


def _repeats(op: Op) -> str:
    """The name of the op that `op` runs again, "" if none."""
    again = op.phase is Phase.BACKWARD and op.name.startswith(RECOMPUTED)
    return op.name.removeprefix(RECOMPUTED) if again else ""


def _saved(graph: Graph) -> list[Saved]:
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    nbytes = {storage.name: storage.nbytes for storage in graph.storages}
    saved = saved_activations(graph)
    spans: dict[str, tuple[int, int]] = {}
    for place, op in enumerate(graph.ops):
        reads = (*op.inputs, *op.mutates) if op.phase is Phase.BACKWARD else ()
        for storage in {home[name] for name in (*op.outputs, *reads)}:
            spans[storage] = spans.get(storage, (place, place))[0], place
    there = fullest_moment({name: spans[name] for name in saved}, nbytes)
    return [Saved(name, nbytes[name]) for name in saved if name in there]


def _only(these: list[Saved], those: list[Saved]) -> tuple[Saved, ...]:
    names = {saved.name for saved in those}
    return tuple(
        sorted((saved for saved in these if saved.name not in names), key=lambda saved: -saved.nbytes)
    )
