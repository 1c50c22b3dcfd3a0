"""The whole memory of a plan, one region behind the other: constants, activations, workspaces.

AITemplate's layout: constants in a region of their own, then the arena, then the workspaces
`[unique 1 … unique N][shared]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from memplan_engine.graph import Graph, Role
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT
from memplan_engine.plan import Plan


class RegionKind(StrEnum):
    """What a region holds, in the order in which the regions lie."""

    CONSTANTS = "constants"
    ACTIVATIONS = "activations"
    UNIQUE = "unique workspaces"
    SHARED = "shared workspace"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something with an offset of its own: bytes from the start of its region."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of memory: `start` and `nbytes` in bytes, entries by offset.

    Activations share bytes over time; all other entries lie side by side. The shared workspace has one entry
    an op that uses it, all at 0.
    """

    kind: RegionKind
    start: int
    nbytes: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """All regions that are not empty, lowest address first."""

    regions: tuple[Region, ...]

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


def shared_workspace(graph: Graph) -> tuple[int, tuple[Entry, ...]]:
    """Bytes of the scratch that all ops share, the maximum, and who uses how much of it."""
    entries = tuple(Entry(op.name, 0, op.workspace.shared) for op in graph.ops if op.workspace.shared)
    return max((entry.nbytes for entry in entries), default=0), entries


def make_layout(plan: Plan, alignment: int = DEFAULT_ALIGNMENT) -> Layout:
    """The layout of `plan`: every region starts at a multiple of `alignment` bytes, but that the shared
    workspace follows the unique ones at once. Without a graph there are activations only."""
    graph = plan.problem.origin.graph if plan.problem.origin else None
    rows = zip(plan.problem.names, plan.offsets.tolist(), plan.problem.size.tolist(), strict=True)
    arena = tuple(sorted((Entry(*row) for row in rows), key=lambda entry: entry.offset))
    parts = [(RegionKind.ACTIVATIONS, plan.arena_bytes, arena)]
    if graph is not None:
        parts = [
            (RegionKind.CONSTANTS, *constants_region(graph, alignment)),
            *parts,
            (RegionKind.UNIQUE, *unique_workspaces(graph)),
            (RegionKind.SHARED, *shared_workspace(graph)),
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
    return Layout(tuple(regions))


def _side_by_side(sizes: Iterable[tuple[str, int]], alignment: int) -> tuple[int, tuple[Entry, ...]]:
    entries, top = [], 0
    for name, nbytes in sizes:
        entries.append(Entry(name, top, nbytes))
        top += -(-nbytes // alignment) * alignment
    return top, tuple(entries)
