"""Ways of buffers → the graph with their copies, and its problem: a buffer for each stay in a bank."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from memplan_engine.banked.banked_plan import accessed_bytes, banks_of, with_banks
from memplan_engine.graph import Graph, Op, Storage, Tensor, storage_role
from memplan_engine.kernels.types import Ints
from memplan_engine.op_kinds.copies import MOVE
from memplan_engine.problem import Origin, Problem, make_problem
from memplan_engine.schedule import Schedule
from memplan_engine.spilling.moves.move_task import MoveTask


@dataclass(frozen=True, slots=True)
class Stay:
    """`buffer` lies in `bank` during the steps `[begin, end)` of the graph without copies."""

    buffer: int
    bank: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """`problem`, of the graph with the copies, has a buffer for each of `stays`, in their order; `op_steps`
    says at which of its steps runs what ran at each step before."""

    problem: Problem
    stays: tuple[Stay, ...]
    op_steps: Ints

    @property
    def bank_of(self) -> Ints:
        """The bank of each buffer of `problem`."""
        return np.array([stay.bank for stay in self.stays], dtype=np.int64)


def stays_of(task: MoveTask, path: Ints) -> tuple[Stay, ...]:
    """The longest stretches of each way in one bank, by buffer and step."""
    stays = []
    for buffer, start in enumerate(task.start.tolist()):
        own = path[task.first[buffer] : task.first[buffer + 1]]
        edges = [0, *(np.flatnonzero(np.diff(own)) + 1).tolist(), len(own)]
        stays += [Stay(buffer, int(own[low]), start + low, start + high) for low, high in pairwise(edges)]
    return tuple(stays)


def moved_problem(task: MoveTask, path: Ints) -> Moved:
    """The problem in which buffers go the ways `path`.

    Each copy is an op with a step of its own, behind the last op that finds the buffer where it was and
    before the first that finds it elsewhere. Of several between the same two ops those to slower banks come
    first, which makes room for those to faster ones; else they keep the buffers' order.
    """
    problem, banks = task.problem, banks_of(task.problem)
    assert problem.origin is not None
    stays = stays_of(task, path)
    # Copy number i leads from stay i to the next of the same buffer.
    copies = [i for i, (one, other) in enumerate(pairwise(stays)) if one.buffer == other.buffer]
    speed = banks.weights
    copies.sort(
        key=lambda i: (stays[i].end, speed[stays[i].bank] - speed[stays[i + 1].bank], stays[i].buffer)
    )
    ends = [stays[i].end for i in copies]
    op_steps = np.array([step + bisect_right(ends, step) for step in range(task.shape[1])], dtype=np.int64)
    at = {i: stays[i].end + place for place, i in enumerate(copies)}
    start = [at[i - 1] if i - 1 in at else int(op_steps[stay.begin]) for i, stay in enumerate(stays)]
    end = [at[i] + 1 if i in at else int(op_steps[stay.end - 1]) + 1 for i, stay in enumerate(stays)]
    rows = np.array([stay.buffer for stay in stays], dtype=np.int64)
    graph, names, step_of_op = _Writer(task, stays, at, op_steps).write()
    steps = (problem.steps or 1) + len(copies)
    bare = make_problem(
        start,
        end,
        problem.size[rows],
        names=names,
        alignment=problem.alignment[rows],
        steps=steps,
        name=problem.name,
        origin=Origin(graph, Schedule(step_of_op, max(step_of_op, default=-1) + 1)),
    )
    counted = accessed_bytes(graph)
    made = with_banks(
        bare,
        banks.banks,
        allowed=banks.allowed[rows],
        accessed=np.array([counted.get(name, 0) for name in names], dtype=np.int64),
        preferred=banks.preferred[rows],
    )
    return Moved(made, stays, op_steps)


class _Writer:
    """Writes the graph: each storage that moves becomes one storage a stay, with a tensor in each for every
    tensor of the old one that is there already and read from then on."""

    def __init__(self, task: MoveTask, stays: tuple[Stay, ...], at: dict[int, int], op_steps: Ints) -> None:
        assert task.problem.origin is not None
        self.stays, self.at, self.op_steps = stays, at, op_steps
        self.graph, self.schedule = task.problem.origin.graph, task.problem.origin.schedule
        self.old = [task.problem.names[stay.buffer] for stay in stays]
        self.names = list(self.old)
        self.banks = banks_of(task.problem).names
        self.size = dict(zip(task.problem.names, task.problem.size.tolist(), strict=True))
        self.home = {tensor.name: tensor.storage for tensor in self.graph.tensors}
        self.of: dict[str, list[Tensor]] = {}
        for tensor in self.graph.tensors:
            self.of.setdefault(tensor.storage, []).append(tensor)
        self.taken = (
            {storage.name for storage in self.graph.storages},
            set(self.home),
            {op.name for op in self.graph.ops},
        )
        """Names of storages, tensors and ops."""
        self.last = dict.fromkeys(self.graph.outputs, self.schedule.steps)
        for op, step in zip(self.graph.ops, self.schedule.step_of_op, strict=True):
            for name in (*op.inputs, *op.mutates):
                self.last[name] = max(self.last.get(name, -1), step)
        self.made = {*self.graph.inputs, *self.graph.constants}
        self.now: dict[str, str] = {}
        """By tensor of the graph the one that stands for it, where that is another; `lies` by storage."""
        self.lies: dict[str, str] = {}
        self.copied: list[Tensor] = []

    def write(self) -> tuple[Graph, list[str], tuple[int, ...]]:
        """The graph, the storage of each stay, and the step of each op."""
        graph = self.graph
        events = [(int(self.op_steps[step]), op, -1) for op, step in enumerate(self.schedule.step_of_op)]
        events = sorted([*events, *((step, len(graph.ops), copy) for copy, step in self.at.items())])
        ops = [self._op(graph.ops[op]) if copy < 0 else self._copy(copy) for _, op, copy in events]
        tensors = [replace(tensor, storage=self.home[tensor.name]) for tensor in graph.tensors]
        outputs = tuple(self.now.get(name, name) for name in graph.outputs)
        whole = replace(graph, ops=tuple(ops), outputs=outputs, tensors=(*tensors, *self.copied))
        return (
            replace(whole, storages=self._storages(whole)),
            self.names,
            tuple(step for step, _, _ in events),
        )

    def _op(self, op: Op) -> Op:
        for name in op.outputs:
            self.home[name] = self.lies.get(self.home[name], self.home[name])
        self.made.update(op.outputs)
        read, written = ([self.now.get(name, name) for name in names] for names in (op.inputs, op.mutates))
        return replace(op, inputs=tuple(read), mutates=tuple(written))

    def _copy(self, copy: int) -> Op:
        """The op that makes stay number `copy` + 1 of what lies in stay number `copy`."""
        stay, storage = self.stays[copy], self.old[copy]
        number = copy + 1 - self.old.index(storage)
        target = _free(f"{storage}@{number}", self.taken[0])
        ready = [tensor for tensor in self.of[storage] if tensor.name in self.made]
        needed = [tensor for tensor in ready if self.last.get(tensor.name, -1) >= stay.end] or ready[:1]
        inputs = tuple(self.now.get(tensor.name, tensor.name) for tensor in needed)
        for tensor in needed:
            name = _free(f"{tensor.name}@{number}", self.taken[1])
            self.copied.append(replace(tensor, name=name, storage=target))
            self.now[tensor.name] = name
        outputs = tuple(self.now[tensor.name] for tensor in needed)
        self.names[copy + 1], self.lies[storage] = target, target
        bank = self.banks[self.stays[copy + 1].bank]
        return Op(_free(f"{storage} to {bank}", self.taken[2]), MOVE, inputs, outputs)

    def _storages(self, whole: Graph) -> tuple[Storage, ...]:
        """Those of the graph, and behind each the others that it goes on in."""
        home = {tensor.name: tensor.storage for tensor in whole.tensors}
        kinds = (("inputs", whole.inputs), ("constants", whole.constants), ("outputs", whole.outputs))
        owned = {kind: {home[name] for name in names} for kind, names in kinds}
        parts: dict[str, list[str]] = {}
        for old, name in zip(self.old, self.names, strict=True):
            parts.setdefault(old, []).append(name)
        made = []
        for storage in self.graph.storages:
            own = parts.get(storage.name, [storage.name])
            for name in own:
                held = storage.held_by if name == own[-1] else ""
                role = storage_role(name, **owned)
                part = replace(storage, name=name, role=role, held_by=held)
                # A copy is of all of a buffer, which may be rounded up.
                size = self.size.get(storage.name, storage.nbytes)
                made.append(part if size == part.nbytes else replace(part, nbytes=size, formula=""))
        return tuple(made)


def _free(name: str, taken: set[str]) -> str:
    """`name`, or one like it that is not `taken` yet."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name
