"""The independent checker of plans in which buffers move between banks, and of bounds that hold for these.

It goes through the ops in time and follows which storage holds the current value of each, so that what was
planned without copies comes to light again: ops, lives and accesses, on which the bounds are proved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from memplan_engine.banked.banked_plan import BankedPlan, banks_of
from memplan_engine.graph import Graph, Op, Tensor
from memplan_engine.op_kinds.copies import MOVE
from memplan_engine.problem import Problem


@dataclass(slots=True)
class Unmoved:
    """A graph without its copies. `ops` are (step, op) with the tensors that there were before; `parts` are
    the storages that each storage lies in one after another, by its first name; `old_step` says for each
    step that is none of a copy which it was before; `twin` is by tensor the one that it is a copy of."""

    ops: list[tuple[int, Op]] = field(default_factory=list)
    parts: dict[str, list[str]] = field(default_factory=dict)
    copy_steps: dict[str, int] = field(default_factory=dict)
    old_step: dict[int, int] = field(default_factory=dict)
    twin: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def unmoved(problem: Problem) -> Unmoved:
    """The graph of `problem` without its copies, and what is wrong with these."""
    found = Unmoved()
    if problem.origin is None:
        found.faults.append("a plan with moves has no graph")
        return found
    graph, schedule = problem.origin.graph, problem.origin.schedule
    order = sorted(zip(schedule.step_of_op, range(len(graph.ops)), strict=True))
    moving = {step for step, op in order if graph.ops[op].kind == MOVE}
    plain = sorted(set(range(problem.steps)) - moving)
    found.old_step = {step: place for place, step in enumerate(plain)}
    _Follower(graph, found).follow([(step, graph.ops[op]) for step, op in order])
    return found


class _Follower:
    def __init__(self, graph: Graph, found: Unmoved) -> None:
        self.graph, self.found = graph, found
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.sizes = {storage.name: storage for storage in graph.storages}
        self.root: dict[str, str] = {}
        """By storage the first one of those that it goes on; `current` by first storage the one that holds
        the value now."""
        self.current: dict[str, str] = {}
        for name in (*graph.inputs, *graph.constants):
            self._begin(self.tensors[name].storage)

    def follow(self, ops: list[tuple[int, Op]]) -> None:
        steps: dict[int, int] = {}
        for step, op in ops:
            steps[step] = steps.get(step, 0) + 1
            if op.kind == MOVE:
                self._copy(step, op)
                continue
            for name in (*op.inputs, *op.mutates):
                self._look(op, name)
            for name in op.outputs:
                self._begin(self.tensors[name].storage)
                self._look(op, name)
            self.found.ops.append((self.found.old_step.get(step, -1), self._before(op)))
        for name in self.graph.outputs:
            self._look(None, name)
        crowded = [op.name for step, op in ops if op.kind == MOVE and steps[step] > 1]
        self.found.faults += [f"{name}: a copy needs a step of its own" for name in crowded]

    def _begin(self, storage: str) -> None:
        if storage not in self.root:
            self.root[storage] = self.current[storage] = storage
            self.found.parts[storage] = [storage]

    def _look(self, op: Op | None, name: str) -> None:
        storage = self.tensors[name].storage
        now = self.current.get(self.root.get(storage, ""), "")
        if now != storage:
            who = "the graph returns" if op is None else f"{op.name} accesses"
            self.found.faults.append(f"{who} {name} in {storage}, and its value is in {now or 'no storage'}")

    def _before(self, op: Op) -> Op:
        twin = self.found.twin
        read, made, written = (
            tuple(twin.get(name, name) for name in own) for own in (op.inputs, op.outputs, op.mutates)
        )
        return Op(op.name, op.kind, read, made, written)

    def _copy(self, step: int, op: Op) -> None:
        sources = {self.tensors[name].storage for name in (*op.inputs, *op.mutates)}
        targets = {self.tensors[name].storage for name in op.outputs}
        wrong = len(sources) != 1 or len(targets) != 1 or op.mutates or len(op.inputs) != len(op.outputs)
        if wrong:
            self.found.faults.append(f"{op.name}: a copy reads one storage and makes another")
            return
        source, target = sources.pop(), targets.pop()
        if target in self.root:
            self.found.faults.append(f"{op.name}: {target} holds something before the copy")
            return
        for name in op.inputs:
            self._look(op, name)
        one, other = self.sizes[source], self.sizes[target]
        same = (one.nbytes, one.alignment) == (other.nbytes, other.alignment)
        for name, copied in zip(op.inputs, op.outputs, strict=True):
            same = same and _facts(self.tensors[name]) == _facts(self.tensors[copied])
            self.found.twin[copied] = self.found.twin.get(name, name)
        if not same:
            self.found.faults.append(f"{op.name}: the copy is not like what it copies")
        root = self.root.get(source, source)
        self.root[target], self.current[root] = root, target
        self.found.parts.setdefault(root, [source]).append(target)
        self.found.copy_steps[target] = step


def _facts(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.nbytes, tensor.strides, tensor.offset


def accesses_of(ops: list[tuple[int, Op]], tensors: dict[str, Tensor]) -> dict[tuple[str, int], int]:
    """(storage, step) → bytes that ops read and write there, from the definition in the documentation."""
    counted: dict[tuple[str, int], int] = {}
    for step, op in ops:
        read = {tensors[name].storage for name in op.inputs}
        new = [name for name in op.outputs if tensors[name].storage not in read]
        shows_only = bool(op.outputs) and not new and not op.mutates
        for name in () if shows_only else (*op.inputs, *op.mutates, *new):
            place = (tensors[name].storage, step)
            counted[place] = counted.get(place, 0) + tensors[name].nbytes
    return counted


def move_faults(banked: BankedPlan) -> list[str]:
    """What is wrong with the copies of a plan: each op finds the current value, each copy stands between two
    stays that are both live then, in two banks, and what is accessed is counted right."""
    problem = banked.problem
    before = unmoved(problem)
    faults = list(before.faults)
    if faults or problem.origin is None:
        return faults
    graph, banks = problem.origin.graph, banks_of(problem)
    rows = {name: row for row, name in enumerate(problem.names)}
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    steps = zip(problem.origin.schedule.step_of_op, graph.ops, strict=True)
    counted: dict[str, int] = {}
    for (storage, _), nbytes in accesses_of([(s, op) for s, op in steps if op.kind != MOVE], tensors).items():
        counted[storage] = counted.get(storage, 0) + nbytes
    for parts in before.parts.values():
        for one, other in pairwise(parts):
            if one not in rows or other not in rows:
                faults.append(f"{other}: a copy of what is not placed")
                continue
            left, right, step = rows[one], rows[other], before.copy_steps[other]
            if problem.end[left] != step + 1 or problem.start[right] != step:
                faults.append(f"{other}: {one} and it are not both live at the copy only, step {step}")
            if banked.bank_of[left] == banked.bank_of[right]:
                faults.append(f"{other}: a copy within {banks.names[int(banked.bank_of[left])]}")
            for storage in (one, other):
                counted[storage] = counted.get(storage, 0) + int(problem.size[rows[storage]])
    for name, row in rows.items():
        if counted.get(name, 0) != banks.accessed[row]:
            faults.append(f"{name}: {banks.accessed[row]} accessed bytes, and {counted.get(name, 0)} are")
    return faults


def check_moves(before: Problem, banked: BankedPlan) -> list[str]:
    """What is wrong with `banked` as a plan with moves of `before`: its copies, and whatever it is a plan of
    besides, or less. Whether it is packed well, and its bound, is `validate_banked`'s to say."""
    faults = move_faults(banked)
    if faults or before.origin is None:
        return faults or ["a problem without a graph"]
    own, given = unmoved(banked.problem), unmoved(before)
    if own.ops != given.ops:
        faults.append("its ops without the copies are not those of the graph")
    if banks_of(before).banks != banks_of(banked.problem).banks:
        faults.append("its banks are others")
    rows = {name: row for row, name in enumerate(banked.problem.names)}
    placed = {name for name in before.names if name in own.parts}
    if sum(len(own.parts[name]) for name in placed) != len(rows) or len(placed) != len(before):
        return [*faults, "it places other buffers"]
    for row, name in enumerate(before.names):
        parts = [rows.get(part, -1) for part in own.parts[name]]
        if min(parts) < 0 or not _is_same(before, row, banked.problem, parts, own):
            faults.append(f"{name}: its stays are not those of the buffer")
    return faults


def _is_same(before: Problem, row: int, after: Problem, parts: list[int], own: Unmoved) -> bool:
    """Whether the rows `parts` have together the life of `row`, and each what else it has."""
    first, last = int(after.start[parts[0]]), int(after.end[parts[-1]]) - 1
    lives = (own.old_step.get(first, -1), own.old_step.get(last, -1) + 1)
    banks, moved = banks_of(before), banks_of(after)
    return lives == (before.start[row], before.end[row]) and all(
        after.size[part] == before.size[row]
        and after.alignment[part] == before.alignment[row]
        and (moved.allowed[part] == banks.allowed[row]).all()
        and moved.preferred[part] == banks.preferred[row]
        for part in parts
    )
