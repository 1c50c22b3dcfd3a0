"""Memory as AITemplate sees it: tensor usage records, and the whole of a plan, one region behind the other.

Usage records are lifetimes in the words of AITemplate, TFLite and Pisarchyk & Lee. Of a plan, constants lie
in a region of their own, then the arena, then the workspaces `[unique 1 … unique N][shared]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memplan_engine.graph import Graph, Role
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, to_problem
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem, make_problem
from memplan_engine.schedule import Schedule, sequential
from memplan_engine.scope import Scope


class RegionKind(StrEnum):
    """What a region holds, in the order in which the regions lie."""

    CONSTANTS = "constants"
    ACTIVATIONS = "activations"
    UNIQUE = "unique workspaces"
    SHARED = "shared workspace"

    @property
    def words(self) -> str:
        """What it is called on screen; the value stands in JSON."""
        return _WORDS.get(self, str(self))


_WORDS = {RegionKind.CONSTANTS: "weights and state", RegionKind.ACTIVATIONS: "arena"}
"""A training step has the optimizer's state among its constants, and gradients in its arena."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something with an offset of its own: bytes from the start of its region."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of memory: `start` and `nbytes` in bytes, entries by offset.

    Activations share bytes over time, and so do the entries of the shared workspace, one an op that uses it;
    all other entries lie side by side.
    """

    kind: RegionKind
    start: int
    nbytes: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """All regions that are not empty, lowest address first; `scope` says what they are all of."""

    regions: tuple[Region, ...]
    scope: Scope = Scope.BUFFERS

    @property
    def nbytes(self) -> int:
        """What must be allocated for everything together, with the padding between regions."""
        return max((region.start + region.nbytes for region in self.regions), default=0)


def constants_region(graph: Graph, alignment: int = DEFAULT_ALIGNMENT) -> tuple[int, tuple[Entry, ...]]:
    """Bytes of the constants, each rounded up to `alignment`, and their offsets in the graph's order."""
    sizes = ((s.name, s.nbytes) for s in graph.storages if s.role is Role.CONSTANT)
    return _side_by_side(sizes, alignment)


def unique_workspaces(graph: Graph) -> tuple[int, tuple[Entry, ...]]:
    """Bytes of all unique scratch, and each op's offset in it: the sum counts, nothing is rounded."""
    sizes = ((op.name, op.workspace.unique) for op in graph.ops if op.workspace.unique)
    return _side_by_side(sizes, 1)


def shared_workspace(graph: Graph, schedule: Schedule | None = None) -> tuple[int, tuple[Entry, ...]]:
    """Bytes of the scratch that ops share, and who uses how much of it from where.

    The maximum counts, over steps: ops of one step run at once, so theirs lie side by side. (AITemplate takes
    the maximum over ops with streams, too.)
    """
    steps = (schedule or sequential(graph)).step_of_op
    tops: dict[int, int] = {}
    entries = []
    for op, step in zip(graph.ops, steps, strict=True):
        if op.workspace.shared:
            entries.append(Entry(op.name, tops.get(step, 0), op.workspace.shared))
            tops[step] = tops.get(step, 0) + op.workspace.shared
    return max(tops.values(), default=0), tuple(entries)


def make_layout(plan: Plan, alignment: int = DEFAULT_ALIGNMENT) -> Layout:
    """The layout of `plan`: every region starts at a multiple of `alignment` bytes, but that the shared
    workspace follows the unique ones at once. Without a graph there are activations only."""
    origin = plan.problem.origin
    rows = zip(plan.problem.names, plan.offsets.tolist(), plan.problem.size.tolist(), strict=True)
    arena = tuple(sorted((Entry(*row) for row in rows), key=lambda entry: entry.offset))
    parts = [(RegionKind.ACTIVATIONS, plan.arena_bytes, arena)]
    if origin is not None:
        parts = [
            (RegionKind.CONSTANTS, *constants_region(origin.graph, alignment)),
            *parts,
            (RegionKind.UNIQUE, *unique_workspaces(origin.graph)),
            (RegionKind.SHARED, *shared_workspace(origin.graph, origin.schedule)),
        ]
    regions: list[Region] = []
    top = 0
    for kind, nbytes, entries in parts:
        if not entries:
            continue
        joined = kind is RegionKind.SHARED and regions and regions[-1].kind is RegionKind.UNIQUE
        start = top if joined else -(-top // alignment) * alignment
        regions.append(Region(kind, start, nbytes, entries))
        top = start + nbytes
    return Layout(tuple(regions), plan.problem.scope)


def _side_by_side(sizes: Iterable[tuple[str, int]], alignment: int) -> tuple[int, tuple[Entry, ...]]:
    entries, top = [], 0
    for name, nbytes in sizes:
        entries.append(Entry(name, top, nbytes))
        top += -(-nbytes // alignment) * alignment
    return top, tuple(entries)


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """A tensor that owns its memory: the first and the last step that touch it or a view of it, inclusive,
    and its size in bytes, rounded up to the alignment."""

    tensor: str
    first_op: int
    last_op: int
    size: int


def usage_records(
    graph: Graph, schedule: Schedule | None = None, *, alignment: int = DEFAULT_ALIGNMENT
) -> tuple[UsageRecord, ...]:
    """The records of `graph` in the order in which its ops first touch the tensors (AITemplate's).

    Inputs and constants have none and neither have views of them; a view extends the tensor that it shows,
    through views of views; outputs last to the last op. With several ops a step, "op" means step.
    """
    problem = to_problem(graph, schedule, alignment=alignment, round_sizes=True)
    first: dict[str, str] = {}
    for tensor in graph.tensors:
        first.setdefault(tensor.storage, tensor.name)
    columns = (problem.names, problem.start.tolist(), problem.end.tolist(), problem.size.tolist())
    return tuple(
        UsageRecord(first.get(name, name), start, end - 1, size)
        for name, start, end, size in zip(*columns, strict=True)
    )


def records_problem(records: Sequence[UsageRecord], *, alignment: int = 1, name: str = "records") -> Problem:
    """The problem of placing `records`. Ties are broken by the first op, then by the order of the records:
    AITemplate's order, for theirs come sorted by first op, as those of `usage_records` do.

    Raises
    ------
    InputError: a last op before the first, a negative size, a tensor twice.
    """
    return make_problem(
        [record.first_op for record in records],
        [record.last_op + 1 for record in records],
        [record.size for record in records],
        names=[record.tensor for record in records],
        alignment=alignment,
        name=name,
    )
