"""Which storages of a static runtime its buffer holds, how large they have become, and the plan for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from memplan_engine.graph import Graph, Role, Tensor, is_contiguous
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, lifetimes
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.problem import Problem, make_problem, select
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.slab.binding import bind
from memplan_engine.runtime.slab.operators import aligned
from memplan_engine.runtime.slab.slab_choice import choose
from memplan_engine.runtime.slab.slab_report import IN_PLACE, MadeStorage, Way
from memplan_engine.runtime.static.static_records import Tape
from memplan_engine.runtime.static.static_reports import Grown
from memplan_engine.schedule import sequential
from memplan_engine.strategies.base import SolveLimits, Strategy
from memplan_engine.torch_capture.torch_fake import storage_of
from memplan_engine.torch_capture.torch_graph import same_strides
from memplan_engine.torch_capture.torch_run import changes_layout
from memplan_engine.torch_capture.torch_storages import StorageWatch

CHANGES = "its shape changes in place"
ODD = "not made in the first run as it was captured"


@dataclass(frozen=True, slots=True)
class Slot:
    """A managed storage: live during the steps `[start, end)`, `nbytes` large."""

    start: int
    end: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Managed:
    """The storages of one program: `slots` of those that ops can write where they are told, by name;
    `storages` is everything that ops make, with the way of each and the reasons."""

    slots: Mapping[str, Slot]
    storages: tuple[MadeStorage, ...]
    returned: frozenset[str]


def find_managed(program: Program) -> Managed:
    """What of `program` can live in the buffer: outputs of operators with an `out` variant, one entry for all
    tensors that share a storage, without those of which the graph returns any part."""
    graph = program.graph
    returned = frozenset(storage.name for storage in graph.storages if storage.role is Role.OUTPUT)
    if not any(s.role is Role.ACTIVATION and s.nbytes for s in graph.storages):
        return Managed({}, (), returned)
    storages = choose(program.module, bind(graph, make_plan(graph, "naive")), "native").storages
    spans = lifetimes(graph, sequential(graph))
    slots = {
        entry.storage: Slot(*spans[entry.storage], entry.nbytes)
        for entry in storages
        if entry.way in IN_PLACE
    }
    return without(Managed(slots, storages, returned), _changing(program), CHANGES)


def _changing(program: Program) -> set[str]:
    """The storages of tensors whose shapes or strides change in place."""
    home = {tensor.name: tensor.storage for tensor in program.graph.tensors}
    ops = {op.name: op for op in program.graph.ops}
    nodes = [node.name for node in program.module.graph.nodes if changes_layout(node)]
    return {home[name] for node in nodes if node in ops for name in (*ops[node].inputs, *ops[node].mutates)}


def make_slots_problem(slots: Mapping[str, Slot], name: str) -> Problem:
    """The managed storages as buffers, in the order in which they begin."""
    names = sorted(slots, key=lambda one: slots[one].start)
    columns = [[getattr(slots[one], field_) for one in names] for field_ in ("start", "end", "nbytes")]
    return make_problem(*columns, names=names, alignment=DEFAULT_ALIGNMENT, name=name)


@dataclass(slots=True)
class Slots:
    """The managed storages at the largest sizes and the longest lifetimes seen, and the plan for them."""

    name: str
    strategy: str | Strategy
    seconds: float
    slots: dict[str, Slot] = field(default_factory=dict)
    ops: tuple[str, ...] = ()
    plan: Plan | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer: the arena of the plan, in whole units of what torch's allocator aligns to."""
        return 0 if self.plan is None else aligned(self.plan.arena_bytes)

    @property
    def slots_bytes(self) -> int:
        """Bytes of a buffer with a slot for each storage, each rounded up, as Static Runtime reckons."""
        return sum(aligned(slot.nbytes) for slot in self.slots.values())

    def admit(self, needed: Mapping[str, Slot], graph: Graph) -> tuple[Grown, ...] | None:
        """Make room for `needed`, storages of `graph`; None when there was room already, else the storages
        that are new or have grown, () when only lifetimes differ; the plan is a new one then.

        Raises
        ------
        PlanError: the strategy cannot place them.
        """
        ops = tuple(op.name for op in graph.ops)
        # Steps mean something only among the same ops.
        slots = dict(self.slots) if ops == self.ops else {}
        grown = []
        for name, slot in needed.items():
            old = slots.get(name, Slot(slot.start, slot.end, 0))
            slots[name] = Slot(
                min(old.start, slot.start), max(old.end, slot.end), max(old.nbytes, slot.nbytes)
            )
            if slot.nbytes > old.nbytes:
                grown.append(Grown(name, old.nbytes, slot.nbytes))
        if slots == self.slots and ops == self.ops:
            return None
        plan = make_plan(
            make_slots_problem(slots, self.name), self.strategy, limits=SolveLimits(self.seconds)
        )
        self.slots, self.ops, self.plan = slots, ops, plan
        return tuple(grown)


class FirstRun(StorageWatch):
    """An unplanned run, watched: `sizes` has the bytes of every storage by the tensor that it was made
    with, `strides` those of that tensor, `shared` the tensors that show one storage, by the same name."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}
        self.strides: dict[str, tuple[int, ...]] = {}
        self.shared: dict[str, list[str]] = {}
        self.at = ""
        self._names: dict[int, str] = {}

    def allocated(self, storage: torch.UntypedStorage, shown: torch.Tensor) -> int:
        """Take its size down."""
        self.sizes[self.at] = storage.nbytes()
        identity: int = storage._cdata
        self._names[identity] = self.at
        return identity

    def freed(self, entry: int) -> None:
        """Another storage may come to lie where this one was."""
        self._names.pop(entry, None)

    def run(self, tape: Tape, inputs: Sequence[Any]) -> tuple[list[Any], frozenset[str]]:
        """The flat outputs of `tape`, and the names of the storages that are returned."""
        self.exclude([tape.registers, inputs])

        def around(index: int, call: Any, args: Any, kwargs: Any) -> Any:
            record = tape.records[index]
            value = call()
            lone = isinstance(value, torch.Tensor)
            for position, leaf in enumerate(pytree.tree_leaves(value)):
                if isinstance(leaf, torch.Tensor):
                    self.at = record.op if lone else f"{record.op}.{position}"
                    self.strides[self.at] = tuple(leaf.stride())
                    self.returned(leaf, args, kwargs, record.call)
                    if name := self._name(leaf):
                        self.shared.setdefault(name, []).append(self.at)
            return value

        values = tape.watched(inputs, around)
        returned = frozenset(self._name(leaf) for leaf in values if isinstance(leaf, torch.Tensor))
        self.close()
        return values, returned - {""}

    def _name(self, tensor: torch.Tensor) -> str:
        if tensor.layout is not torch.strided:
            return ""
        return self._names.get(storage_of(tensor), "")


def observed(managed: Managed, graph: Graph, run: FirstRun, returned: Iterable[str]) -> Managed:
    """`managed` as the first run has shown it: only storages that were made as captured, of that size and
    each by itself, and that were not returned."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    sizes: dict[str, list[int]] = {}
    for tensor, nbytes in run.sizes.items():
        if tensor in home:
            sizes.setdefault(home[tensor], []).append(nbytes)
    out = {home.get(name, "") for name in returned}
    # Two planned storages must not have been one.
    mixed = {
        home[tensor]
        for name, tensors in run.shared.items()
        for tensor in (name, *tensors)
        if tensor in home and home[tensor] != home.get(name)
    }
    slots = managed.slots
    odd = {name for name in slots if sizes.get(name) != [slots[name].nbytes] or name in out | mixed}
    odd |= {tensor.name for tensor in graph.tensors if not _lies_as_captured(tensor, run)}
    return without(managed, odd, ODD)


def _lies_as_captured(tensor: Tensor, run: FirstRun) -> bool:
    """Whether the run gave a tensor of the strides that the graph has; one that it did not give does."""
    strides = run.strides.get(tensor.name)
    if strides is None:
        return True
    if len(strides) != len(tensor.shape):
        return False
    if tensor.strides is None:
        return is_contiguous(tensor.shape, strides)
    return same_strides(tensor.shape, strides, tensor.strides)


def without(managed: Managed, names: Collection[str], reason: str) -> Managed:
    """`managed` with the storages `names` left to the allocator."""
    slots = {name: slot for name, slot in managed.slots.items() if name not in names}
    storages = [
        replace(entry, way=Way.LEFT, reason=reason)
        if entry.storage in names and entry.storage in managed.slots
        else entry
        for entry in managed.storages
    ]
    return Managed(slots, tuple(storages), managed.returned)


def part_of(plan: Plan, names: Collection[str]) -> Plan:
    """`plan` with the buffers `names` alone, where they are."""
    rows = np.flatnonzero([name in names for name in plan.problem.names])
    return replace(plan, problem=select(plan.problem, rows), offsets=plan.offsets[rows], objects=None)
