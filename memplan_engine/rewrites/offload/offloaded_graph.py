"""The graph of a schedule in which storages are copied to the host and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from memplan_engine.graph import PRODUCED, Graph, Op, Role, Storage, Tensor
from memplan_engine.op_kinds.copies import ON_HOST, TO_DEVICE, TO_HOST, is_copy


class Away(NamedTuple):
    """The `storage` is copied to the host behind the op `begin`, gone before the op `left`, copied back from
    before the op `back` on, and read by the op `end` next; all by index."""

    storage: str
    begin: int
    left: int
    back: int
    end: int


def offloaded_graph(graph: Graph, gone: Iterable[Away]) -> Graph:
    """`graph` with the copies of the storages that are `gone` for a while, those behind one op in the order
    in which they are given, those back by who is needed first. What comes back lies in a new storage, with a
    tensor for each of the old one that something reads from then on."""
    return _Writer(graph, list(gone)).write()


def _by_step(steps: Iterable[int]) -> dict[int, list[int]]:
    """Each step → the places at which it stands in `steps`."""
    found: dict[int, list[int]] = {}
    for place, step in enumerate(steps):
        found.setdefault(step, []).append(place)
    return found


class _Writer:
    def __init__(self, graph: Graph, gone: list[Away]) -> None:
        self.graph, self.gone = graph, gone
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.sizes = {storage.name: storage for storage in graph.storages}
        self.names = {*self.tensors, *self.sizes, *(op.name for op in graph.ops)}
        self.of: dict[str, list[Tensor]] = {}
        for tensor in graph.tensors:
            self.of.setdefault(tensor.storage, []).append(tensor)
        self.last: dict[str, int] = dict.fromkeys(graph.outputs, len(graph.ops))
        for index, op in enumerate(graph.ops):
            for name in (*op.inputs, *op.mutates):
                self.last[name] = max(self.last.get(name, -1), index)
        self.made: set[str] = set()
        self.now: dict[str, str] = {}
        """By tensor of the graph the one that stands for it, where that is another; `lies` by storage."""
        self.lies: dict[str, str] = {}
        self.handles: dict[int, str] = {}
        self.stems: dict[int, str] = {}
        self.ops: list[Op] = []
        self.new_tensors: list[Tensor] = []
        self.new_storages: list[Storage] = []
        self.moved: dict[str, str] = {}

    def write(self) -> Graph:
        begins = _by_step(away.begin for away in self.gone)
        lefts = _by_step(away.left for away in self.gone)
        backs = _by_step(away.back for away in self.gone)
        for index, op in enumerate(self.graph.ops):
            for number in lefts.get(index, ()):
                self._wait(number, op)
            for number in sorted(backs.get(index, ()), key=lambda each: (self.gone[each].end, each)):
                self._fetch(number, op)
            self._run(op)
            for number in begins.get(index, ()):
                self._send(number, op)
        outputs = tuple(self.now.get(name, name) for name in self.graph.outputs)
        tensors = [
            *(replace(each, storage=self.moved.get(each.name, each.storage)) for each in self.graph.tensors),
            *self.new_tensors,
        ]
        returned = {tensor.storage for tensor in tensors if tensor.name in set(outputs)}
        storages = tuple(
            replace(each, role=Role.OUTPUT if each.name in returned else Role.ACTIVATION)
            if each.role in PRODUCED
            else each
            for each in (*self.graph.storages, *self.new_storages)
        )
        return replace(
            self.graph, storages=storages, tensors=tuple(tensors), ops=tuple(self.ops), outputs=outputs
        )

    def _run(self, op: Op) -> None:
        reads, writes = ([self.now.get(name, name) for name in names] for names in (op.inputs, op.mutates))
        self.ops.append(replace(op, inputs=tuple(reads), mutates=tuple(writes)))
        for name in op.outputs:
            self.made.add(name)
            if (storage := self.tensors[name].storage) in self.lies:
                self.moved[name] = self.lies[storage]

    def _send(self, number: int, behind: Op) -> None:
        storage = self.gone[number].storage
        stem = self.stems[number] = self._free(f"{storage}_away")
        self.handles[number] = self._handle(stem, TO_HOST, (self._one(storage),), behind)

    def _wait(self, number: int, before: Op) -> None:
        storage, stem = self.gone[number].storage, self.stems[number]
        reads = (self._one(storage), self.handles[number])
        self.handles[number] = self._handle(stem, ON_HOST, reads, before)

    def _one(self, storage: str) -> str:
        """A tensor that is in `storage`, or in what stands for it, now."""
        here = (each.name for each in self.of[storage] if each.name in self.made)
        if storage not in self.lies:
            return next(here)
        return next(self.now.get(name, name) for name in here if name in self.now or name in self.moved)

    def _handle(self, stem: str, kind: str, reads: tuple[str, ...], near: Op) -> str:
        """What stands for a copy at the host: a tensor of no bytes."""
        name = self._free(f"{stem}_{kind.rpartition('::')[2]}")
        self.new_storages.append(Storage(name, 0, Role.ACTIVATION))
        self.new_tensors.append(Tensor(name, (0,), "uint8", 0, name))
        self.ops.append(Op(name, kind, reads, (name,), phase=near.phase))
        return name

    def _fetch(self, number: int, before: Op) -> None:
        away, stem = self.gone[number], self.stems[number]
        name = self._free(f"{stem}_back")
        self.new_storages.append(replace(self.sizes[away.storage], name=name))
        needed = [
            each for each in self.of[away.storage] if each.name in self.made and self._later(each.name, away)
        ]
        outputs = []
        for place, each in enumerate(needed):
            new = self._free(f"{name}.{place}")
            self.new_tensors.append(replace(each, name=new, storage=name))
            self.now[each.name] = new
            outputs.append(new)
        self.lies[away.storage] = name
        reads = (self.handles[number],)
        self.ops.append(Op(name, TO_DEVICE, reads, tuple(outputs), phase=before.phase))

    def _later(self, name: str, away: Away) -> bool:
        return self.last.get(name, -1) >= away.end

    def _free(self, name: str) -> str:
        """`name`, with a number behind it where it is taken."""
        number, found = 1, name
        while found in self.names:
            number += 1
            found = f"{name}_{number}"
        self.names.add(found)
        return found


@dataclass(frozen=True, slots=True)
class CopiedStorage:
    """`storage` of `nbytes` is copied to the host from step `sent` on, is gone from step `left` to step
    `back`, when it begins to come back; steps are places of ops in the graph."""

    storage: str
    nbytes: int
    sent: int
    left: int
    back: int


def copied_storages(graph: Graph) -> list[CopiedStorage]:
    """What waits on the host in `graph`, as `offloaded_graph` gives it, in the order in which it goes. Who
    waits twice is there twice."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    nbytes = {storage.name: storage.nbytes for storage in graph.storages}
    sent: dict[str, tuple[int, str]] = {}
    left: dict[str, tuple[int, int, str]] = {}
    found = []
    for step, op in enumerate(graph.ops):
        if op.kind == TO_HOST:
            sent[op.outputs[0]] = step, home[op.inputs[0]]
        elif op.kind == ON_HOST:
            begun, storage = sent[op.inputs[1]]
            left[op.outputs[0]] = begun, step, storage
        elif op.kind == TO_DEVICE:
            begun, gone, storage = left[op.inputs[0]]
            found.append(CopiedStorage(storage, nbytes[storage], begun, gone, step))
    return sorted(found, key=lambda each: each.sent)


def without_copies(graph: Graph) -> Graph:
    """`graph`, as `offloaded_graph` gives it, without its copies: what reads what came back reads what was
    copied."""
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    own: dict[str, str] = {}
    """By tensor that came back the one that was copied."""
    made: dict[str, list[str]] = {}
    storage_of: dict[str, str] = {}
    """By handle the storage that was copied first."""
    lies: dict[str, str] = {}
    ops = []
    for op in graph.ops:
        if op.kind == TO_DEVICE:
            home = storage_of[op.inputs[0]]
            for name in op.outputs:
                lies[tensors[name].storage] = home
                # Of several that have its form the last: what was written last is what was copied.
                own[name] = next(
                    each for each in reversed(made[home]) if _form(tensors[each]) == _form(tensors[name])
                )
            continue
        if is_copy(op.kind):
            storage = tensors[op.inputs[0]].storage
            storage_of[op.outputs[0]] = lies.get(storage, storage)
            continue
        ops.append(
            replace(
                op,
                inputs=tuple(own.get(name, name) for name in op.inputs),
                mutates=tuple(own.get(name, name) for name in op.mutates),
            )
        )
        for name in op.outputs:
            storage = tensors[name].storage
            made.setdefault(lies.get(storage, storage), []).append(name)
    gone = {name for op in graph.ops if is_copy(op.kind) for name in op.outputs}
    kept = [each for each in graph.tensors if each.name not in gone]
    moved = tuple(replace(each, storage=lies.get(each.storage, each.storage)) for each in kept)
    used = {each.storage for each in moved}
    outputs = tuple(own.get(name, name) for name in graph.outputs)
    returned = {each.storage for each in moved if each.name in outputs}
    storages = tuple(
        replace(each, role=Role.OUTPUT) if each.name in returned and each.role in PRODUCED else each
        for each in graph.storages
        if each.name in used or each.role not in PRODUCED
    )
    return replace(graph, storages=storages, tensors=moved, ops=tuple(ops), outputs=outputs)


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.strides, tensor.offset


def copied_like(base: Graph, graph: Graph) -> Graph:
    """`base` with the copies that `graph` has, whose other ops are those of `base` in the same order, but for
    what they write over."""
    home = {tensor.name: tensor.storage for tensor in base.tensors}
    plain = without_copies(graph)
    read: dict[str, str] = {}
    for op, twin in zip((op for op in graph.ops if not is_copy(op.kind)), plain.ops, strict=True):
        read |= dict(zip((*op.inputs, *op.mutates), (*twin.inputs, *twin.mutates), strict=True))
    begun: dict[str, tuple[str, int]] = {}
    left: dict[str, tuple[str, int, int]] = {}
    gone: list[Away] = []
    step = 0
    for op in graph.ops:
        if op.kind == TO_HOST:
            name = op.inputs[0]
            begun[op.outputs[0]] = home[read.get(name, name)], step - 1
        elif op.kind == ON_HOST:
            left[op.outputs[0]] = (*begun[op.inputs[-1]], step)
        elif op.kind == TO_DEVICE:
            names = set(op.outputs)
            rest = (
                index
                for index, each in enumerate(each for each in graph.ops if not is_copy(each.kind))
                if index >= step and names & {*each.inputs, *each.mutates}
            )
            gone.append(Away(*left[op.inputs[0]], step, next(rest, len(base.ops))))
        else:
            step += 1
    return offloaded_graph(base, sorted(gone, key=lambda each: each.begin))
