"""What makes a storage and fills it with random numbers, taken as one op, so that it may run again whole.

Dropout on a CPU takes three: `empty_like` makes the mask, `bernoulli_` draws it, `div_` scales it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memplan_engine.graph import PRODUCED, Graph, Op
from memplan_engine.op_kinds.ordered import ONCE, draws, has_effect

Fill = tuple[int, ...]
"""Ops by index, two or more: the first makes the storage, all others write over it."""


def fills(graph: Graph) -> list[Fill]:
    """Those of `graph` that can run as one, in the place of the first of them that draws."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    counted = {storage.name for storage in graph.storages if storage.role in PRODUCED and storage.nbytes}
    touched: dict[str, list[int]] = {}
    for index, op in enumerate(graph.ops):
        for storage in {home[name] for name in (*op.inputs, *op.mutates, *op.outputs)}:
            touched.setdefault(storage, []).append(index)
    found = []
    for storage, users in touched.items():
        if storage in counted:
            members = _filling(graph, home, counted, storage, users)
            if len(members) > 1 and _can_gather(graph, home, members):
                found.append(members)
    return found


def _filling(graph: Graph, home: dict[str, str], counted: set[str], storage: str, users: list[int]) -> Fill:
    """Of the `users` of `storage` the first ones, which make it and write over it, up to the last before
    anything reads it."""
    members: list[int] = []
    for index in users:
        op = graph.ops[index]
        read = {home[name] for name in (*op.inputs, *op.mutates)}
        written = {home[name] for name in op.mutates}
        makes = not members and not written and storage not in read
        fills_on = bool(members) and written == {storage} and not (read - {storage}) & counted
        alone = {home[name] for name in op.outputs} <= {storage} and op.kind != ONCE and not has_effect(op)
        if not (alone and (makes or fills_on)):
            break
        members.append(index)
    return tuple(members)


def _draws(op: Op, home: dict[str, str]) -> bool:
    read = {home[name] for name in (*op.inputs, *op.mutates)}
    return draws(op, not {home[name] for name in op.outputs} - read)


def _can_gather(graph: Graph, home: dict[str, str], members: Fill) -> bool:
    """Whether some of `members` draw, with no other draw between them, and nothing between the first and the
    last member writes over what they read."""
    drawing = [index for index in members if _draws(graph.ops[index], home)]
    if not drawing:
        return False
    read = {home[name] for index in members for name in graph.ops[index].inputs}
    for index in set(range(members[0], members[-1])) - set(members):
        op = graph.ops[index]
        if drawing[0] < index < drawing[-1] and _draws(op, home):
            return False
        if read & {home[name] for name in op.mutates}:
            return False
    return True


def with_fills_whole(graph: Graph, found: Sequence[Fill]) -> tuple[Graph, list[Fill]]:
    """`graph` with an op in place of each fill that was `found`, under the name of its first op; and by op of
    that graph those of `graph`."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    fill_of = {index: members for members in found for index in members}
    ops: list[Op] = []
    members_of: list[Fill] = []
    for index, op in enumerate(graph.ops):
        members = fill_of.get(index)
        if members is None:
            ops.append(op)
            members_of.append((index,))
        elif index == next(each for each in members if _draws(graph.ops[each], home)):
            ops.append(_whole(graph, members, op, home))
            members_of.append(members)
    return replace(graph, ops=tuple(ops)), members_of


def _whole(graph: Graph, members: Fill, drawing: Op, home: dict[str, str]) -> Op:
    own = [graph.ops[index] for index in members]
    outputs = tuple(name for op in own for name in op.outputs)
    storages = {home[name] for name in own[0].outputs}
    inputs = dict.fromkeys(name for op in own for name in op.inputs if home[name] not in storages)
    return replace(drawing, name=own[0].name, inputs=tuple(inputs), outputs=outputs, mutates=())
