"""Graph and schedule → problem: when each storage is first written and last read."""

from __future__ import annotations

from enum import StrEnum
from typing import TypedDict

from memplan_engine.errors import InputError
from memplan_engine.graph import PRODUCED, Graph, Path, Role
from memplan_engine.problem import Gap, Origin, Problem, make_problem
from memplan_engine.schedule import Schedule, check_reads, sequential

DEFAULT_ALIGNMENT = 64
"""Bytes; what AITemplate, TFLite and ONNX Runtime align to on CPUs with wide vectors."""


class Unread(StrEnum):
    """What becomes of a value that no op reads and that the graph does not return.

    FREED: it dies with the step that makes it, as in a planned arena. HELD: it lives to the last step, as in
    `torch.fx.Interpreter`, which frees a value at its last reader and so never one that has none.
    """

    FREED = "freed"
    HELD = "held"


def lifetimes(graph: Graph, schedule: Schedule, unread: Unread = Unread.FREED) -> dict[str, tuple[int, int]]:
    """The half-open lifetime, in steps, of every storage that some op touches or that an op could read,
    in the order in which the ops touch them.

    A storage starts at the step of the first op that makes or reads one of its tensors (inputs and
    constants at 0) and ends one step after the last op that touches any of them: views, also views of views,
    extend the storage they show. One that is held by a later op ends after that. Storages of graph outputs
    live to the last step, and with HELD so do those that nobody reads.
    """
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    first: dict[str, int] = {home[name]: 0 for name in (*graph.inputs, *graph.constants)}
    last: dict[str, int] = dict.fromkeys(first, 0)
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        for name in (*op.inputs, *op.mutates, *op.outputs):
            storage = home[name]
            first[storage] = min(first.get(storage, step), step)
            last[storage] = max(last.get(storage, step), step)
    step_of = {op.name: step for op, step in zip(graph.ops, schedule.step_of_op, strict=True)}
    for each in graph.storages:
        if each.held_by and each.name in first:
            last[each.name] = max(last[each.name], step_of[each.held_by])
    kept = (*graph.outputs, *(_unread(graph) if unread is Unread.HELD else ()))
    last.update({home[name]: schedule.steps - 1 for name in kept if home[name] in first})
    return {name: (first[name], max(last[name], first[name]) + 1) for name in first}


def _unread(graph: Graph) -> list[str]:
    """The outputs of the ops none of whose outputs is read or returned: of several outputs together, those
    that nobody asks for go with the others."""
    read = {name for op in graph.ops for name in (*op.inputs, *op.mutates)} | set(graph.outputs)
    return [name for op in graph.ops if not read.intersection(op.outputs) for name in op.outputs]


def branch_gaps(graph: Graph, schedule: Schedule) -> dict[str, tuple[Gap, ...]]:
    """Return the steps in which storages that several branches make are not live, by their names.

    The result of a branch is one storage with those of the others. It is live in each branch from the op that
    makes it there, but not from the end of one branch to the op that makes it in the next.
    """
    if not any(op.within for op in graph.ops):
        return {}
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    ends: dict[Path, int] = {}
    began: dict[str, Path] = {home[name]: () for name in (*graph.inputs, *graph.constants)}
    last: dict[str, Path] = dict(began)
    gaps: dict[str, list[Gap]] = {}
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        path = op.within
        for outer in (path[: depth + 1] for depth in range(len(path))):
            ends[outer] = max(ends.get(outer, 0), step + 1)
        read = {home[name] for name in (*op.inputs, *op.mutates)}
        for name in read | {home[name] for name in op.outputs}:
            begin, before = began.setdefault(name, path), last.get(name, path)
            depth = _parting(before, path)
            # This branch makes the storage again: the result of the one before does not exist while it runs.
            if name not in read and depth is not None and _is_inside(begin, path[depth][0], path[:depth]):
                gaps.setdefault(name, []).append(Gap(ends[before[: depth + 1]], step))
                began[name] = path
            last[name] = path
    return {name: tuple(gap for gap in own if gap.start < gap.end) for name, own in gaps.items()}


def _parting(one: Path, other: Path) -> int | None:
    """Return the depth at which both paths enter different branches of one op, or None."""
    for depth, (ours, theirs) in enumerate(zip(one, other, strict=False)):
        if ours != theirs:
            return depth if ours[0] == theirs[0] else None
    return None


def _is_inside(path: Path, call: str, outer: Path) -> bool:
    """Return whether `path` leads into a branch of `call`, which stands at `outer`."""
    return path[: len(outer)] == outer and len(path) > len(outer) and path[len(outer)][0] == call


class PlanningOptions(TypedDict, total=False):
    """What may be asked of the buffers of a graph, at whatever sizes: keywords of every function that finds
    them, which hands them on to `to_problem`."""

    alignment: int
    """Bytes, for storages that ask for none of their own; 64 unless given."""
    plan_inputs: bool
    """Whether the graph's inputs are planned as well."""
    unread: Unread
    """How long what nobody reads is held."""


def to_problem(
    graph: Graph,
    schedule: Schedule | None = None,
    *,
    alignment: int = DEFAULT_ALIGNMENT,
    plan_inputs: bool = False,
    unread: Unread = Unread.FREED,
    round_sizes: bool = False,
) -> Problem:
    """The buffers of `graph` that the arena has to hold, in the order in which they become live.

    Constants have a region of their own and are never among them; graph inputs only with `plan_inputs`.
    Storages of no bytes need no place and are left out. A storage's own alignment, where it has one, takes
    the place of `alignment` (bytes). `round_sizes` makes every size a multiple of its alignment, as
    AITemplate and TFLite do.

    Raises
    ------
    InputError: `alignment` below 1; a schedule that runs an op before its inputs are made.
    """
    if alignment < 1:
        raise InputError(graph.name, "alignment", str(alignment), "1 or more bytes")
    schedule = sequential(graph) if schedule is None else check_reads(graph, schedule, graph.name)
    spans = lifetimes(graph, schedule, unread)
    planned = PRODUCED | ({Role.INPUT} if plan_inputs else set())
    storages = {s.name: s for s in graph.storages if s.role in planned and s.nbytes}
    buffers = [storages[name] for name in sorted(spans, key=lambda name: spans[name][0]) if name in storages]
    alignments = [s.alignment or alignment for s in buffers]
    gaps = branch_gaps(graph, schedule)
    return make_problem(
        [spans[s.name][0] for s in buffers],
        [spans[s.name][1] for s in buffers],
        [
            -(-s.nbytes // unit) * unit if round_sizes else s.nbytes
            for s, unit in zip(buffers, alignments, strict=True)
        ],
        names=[s.name for s in buffers],
        alignment=alignments,
        gaps={row: gaps[s.name] for row, s in enumerate(buffers) if s.name in gaps},
        # A graph without ops has no step, and still its inputs.
        steps=schedule.steps or None,
        name=graph.name,
        origin=Origin(graph, schedule),
    )
