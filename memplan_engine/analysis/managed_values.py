"""Which values a planner may give a place in its arena, and why each other one has to be allocated as ever.

Static Runtime's rules, which PyTorch's JIT planner took over: a value is managed when its size is known and
the op that makes it can write into memory that it is given. Storages count once, however many values share
them; what the graph returns belongs to the caller and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.graph import Graph, Op, Role, Storage, unknown_sizes
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, to_problem
from memplan_engine.problem import Problem, make_problem
from memplan_engine.schedule import Schedule


class Reason(StrEnum):
    """Why a value is managed, the first two, or is not; `explain` says it with the names."""

    OUT_VARIANT = "its op has an out variant"
    UNKNOWN_VARIANT = "its op is assumed to have an out variant"
    ALIAS = "it shares the storage of another value"
    GRAPH_INPUT = "it belongs to the caller"
    CONSTANT = "it is a constant, stored separately"
    GRAPH_OUTPUT = "the graph returns it"
    OUTPUT_CONTAINER = "it is part of the container that the graph returns"
    NO_OUT_VARIANT = "its op has no out variant and allocates its result itself"
    DATA_DEPENDENT = "its size depends on the data"
    EMPTY = "it has no bytes"


MANAGED = (Reason.OUT_VARIANT, Reason.UNKNOWN_VARIANT)


@dataclass(frozen=True, slots=True)
class ManagedValue:
    """One tensor of a graph. `nbytes` is what its storage takes, 0 for an alias: storages count once.

    `other` names what `reason` speaks of: for an alias the value whose storage it shares, with which it is
    planned or not; for what the graph returns the value that it returns; for data-dependent sizes the symbol;
    for out variants the op.
    """

    tensor: str
    managed: bool
    reason: Reason
    nbytes: int
    other: str = ""

    @property
    def explanation(self) -> str:
        """One clause for people."""
        if self.reason is Reason.ALIAS:
            how = "planned" if self.managed else "unmanaged"
            return f"it shares the storage of {self.other}, {how} with it"
        if self.other in ("", self.tensor):
            return str(self.reason)
        if self.reason in (Reason.GRAPH_OUTPUT, Reason.OUTPUT_CONTAINER):
            return f"it shares its storage with {self.other}: {self.reason.replace('it', self.other, 1)}"
        return f"{self.reason} ({self.other})"


@dataclass(frozen=True, slots=True)
class Outside:
    """What is left out of a plan for one reason: how many storages, and their bytes."""

    reason: Reason
    storages: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ManagedProblem:
    """The managed buffers as a problem, and all that stays outside, in the order of `Reason`."""

    problem: Problem
    outside: tuple[Outside, ...]

    @property
    def outside_bytes(self) -> int:
        """Bytes of all that stays outside, constants and inputs included."""
        return sum(part.nbytes for part in self.outside)


def managed_values(graph: Graph) -> tuple[ManagedValue, ...]:
    """One entry for each tensor of `graph`, in the graph's order: is it managed, and why or why not.

    The first tensor of a storage owns it: the graph's input or constant, or what the first op that writes
    there makes. All others share it and go the same way. O(tensors + ops).
    """
    storages = {storage.name: storage for storage in graph.storages}
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    maker = {name: op for op in graph.ops for name in op.outputs}
    owner: dict[str, str] = {}
    for name in (*graph.inputs, *graph.constants, *(name for op in graph.ops for name in op.outputs)):
        owner.setdefault(home[name], name)
    returned: dict[str, str] = {}
    for name in graph.outputs:
        if home[name] not in returned or name == owner[home[name]]:
            returned[home[name]] = name
    unknown = unknown_sizes(graph)
    whole = len(graph.outputs) == 1
    values: dict[str, ManagedValue] = {}
    for storage, name in owner.items():
        reason, other = _reason(storages[storage], maker.get(name), returned.get(storage), whole, unknown)
        values[name] = ManagedValue(name, reason in MANAGED, reason, storages[storage].nbytes, other)
    for tensor in graph.tensors:
        if tensor.name not in values:
            other = owner[tensor.storage]
            values[tensor.name] = ManagedValue(tensor.name, values[other].managed, Reason.ALIAS, 0, other)
    return tuple(values[tensor.name] for tensor in graph.tensors)


def managed_problem(
    graph: Graph, schedule: Schedule | None = None, *, alignment: int = DEFAULT_ALIGNMENT
) -> ManagedProblem:
    """Only the managed values planned; all other storages outside, their bytes summed by reason.

    Raises
    ------
    InputError: `alignment` (bytes) below 1.
    """
    values = managed_values(graph)
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    managed = {home[value.tensor] for value in values if value.managed}
    whole = to_problem(graph, schedule, alignment=alignment)
    rows = np.flatnonzero([name in managed for name in whole.names])
    problem = make_problem(
        whole.start[rows],
        whole.end[rows],
        whole.size[rows],
        names=[whole.names[row] for row in rows.tolist()],
        alignment=whole.alignment[rows],
        steps=whole.steps,
        name=whole.name,
        origin=whole.origin,
    )
    return ManagedProblem(problem, summarise(values))


def summarise(values: Iterable[ManagedValue]) -> tuple[Outside, ...]:
    """What is not managed, by reason: storages and bytes. Aliases are counted with their owner."""
    counts: dict[Reason, tuple[int, int]] = {}
    for value in values:
        if not value.managed and value.reason is not Reason.ALIAS:
            storages, nbytes = counts.get(value.reason, (0, 0))
            counts[value.reason] = storages + 1, nbytes + value.nbytes
    return tuple(Outside(reason, *counts[reason]) for reason in Reason if reason in counts)


def _reason(
    storage: Storage, op: Op | None, returned: str | None, whole: bool, unknown: dict[str, str]
) -> tuple[Reason, str]:
    """Why the owner of `storage`, made by `op`, is managed or not, and whom that speaks of.

    `returned` is the value that the graph returns from this storage; `whole` says that the graph returns one
    value and no container; `unknown` are the storages whose size depends on the data, with the symbol.
    """
    if storage.role is Role.CONSTANT:
        return Reason.CONSTANT, ""
    if storage.role is Role.INPUT or op is None:
        return Reason.GRAPH_INPUT, ""
    if returned is not None:
        return Reason.GRAPH_OUTPUT if whole else Reason.OUTPUT_CONTAINER, returned
    if op.out_variant is False:
        return Reason.NO_OUT_VARIANT, op.kind
    if storage.name in unknown:
        return Reason.DATA_DEPENDENT, unknown[storage.name]
    if storage.nbytes == 0:
        return Reason.EMPTY, ""
    return Reason.OUT_VARIANT if op.out_variant else Reason.UNKNOWN_VARIANT, op.kind
