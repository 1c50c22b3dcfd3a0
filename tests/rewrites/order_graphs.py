"""Small random graphs for the tests of order, and the least peak over all orders in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from random import Random

from memplan_engine.graph import PRODUCED, Graph, Op, Role, Storage, Tensor, check_graph


def random_graph(seed: int, ops: int) -> Graph:
    """`ops` ops over one input and one weight: some make two tensors, some are views, some write in place,
    some draw random numbers, some are there for an effect; sizes are few, so that many are equal."""
    draw = Random(seed)
    tensors = [Tensor("x", (4,), "int8", 4, "x"), Tensor("w", (4,), "int8", 4, "w")]
    made: list[Op] = []
    for number in range(ops):
        count = min(len(tensors), draw.choice([1, 1, 2, 2, 3]))
        read = draw.sample(tensors[-6:], min(count, len(tensors[-6:])))
        name, names = f"op{number}", tuple(tensor.name for tensor in read)
        kind = draw.choice(["mix", "mix", "mix", "relu", "two", "view", "write", "aten.rand", "effect"])
        size = draw.choice([1, 2, 4, 4, 7])
        if kind == "view":
            tensors.append(Tensor(f"t{number}", (1,), "int8", 1, read[0].storage))
            made.append(Op(name, "aten.select", names[:1], (f"t{number}",)))
        elif kind == "write":
            made.append(Op(name, "aten.add_", names, (), names[:1]))
        elif kind == "effect":
            made.append(Op(name, "print", names, ()))
        else:
            if kind == "relu":
                size = read[0].nbytes
            outputs = tuple(f"t{number}{letter}" for letter in ("ab" if kind == "two" else "a"))
            tensors += [Tensor(each, (size,), "int8", size, each) for each in outputs]
            made.append(Op(name, kind, names, outputs))
    produced = [tensor for tensor in tensors if tensor.name not in "xw"]
    returned = draw.sample(produced, min(len(produced), draw.choice([0, 1, 2])))
    kept = {tensor.storage for tensor in returned}
    sizes = {tensor.storage: tensor.nbytes for tensor in reversed(tensors)}
    roles = {"x": Role.INPUT, "w": Role.CONSTANT}
    storages = tuple(
        Storage(name, size, roles.get(name, Role.OUTPUT if name in kept else Role.ACTIVATION))
        for name, size in reversed(sizes.items())
    )
    outputs = tuple(tensor.name for tensor in returned)
    return check_graph(Graph("random", storages, tuple(tensors), tuple(made), ("x",), outputs, ("w",)))


def needs(graph: Graph) -> list[set[int]]:
    """By the names that `random_graph` gives, what each op waits for: every earlier op that makes what it
    reads, or touches what one of both writes."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    touched = [{home[name] for name in (*op.inputs, *op.mutates, *op.outputs)} for op in graph.ops]
    writes = [
        {home[name] for name in op.mutates} | {home[name] for name in op.outputs if op.kind != "aten.select"}
        for op in graph.ops
    ]
    makes = [set(op.outputs) for op in graph.ops]
    before = [
        {
            earlier
            for earlier in range(index)
            if makes[earlier] & {*op.inputs, *op.mutates}
            or touched[earlier] & touched[index] & (writes[earlier] | writes[index])
        }
        for index, op in enumerate(graph.ops)
    ]
    for kinds in (("aten.rand", "aten.bernoulli_"), ("print",)):
        chain = [index for index, op in enumerate(graph.ops) if op.kind in kinds]
        for first, second in pairwise(chain):
            before[second].add(first)
    return before


def least_peak(
    graph: Graph, over: dict[int, tuple[str, ...]] | None = None, before: Sequence[set[int]] = ()
) -> int:
    """The least live bytes at the worst step over all orders, by trying all sets of ops that may have run.
    `over` says which storages an op may write over when it is the last to touch them, `before` what each op
    waits for, where that is not what `needs` says."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    touched = [{home[name] for name in (*op.inputs, *op.mutates, *op.outputs)} for op in graph.ops]
    counted = {s.name: s.nbytes for s in graph.storages if s.role in PRODUCED}
    kept = {home[name] for name in graph.outputs}
    before, everything = before or needs(graph), frozenset(range(len(graph.ops)))

    users = {name: {index for index, own in enumerate(touched) if name in own} for name in home.values()}

    def while_running(done: frozenset[int], op: int) -> int:
        begun = {storage for storage in counted if users[storage] & (done | {op})}
        live = {storage for storage in begun if users[storage] - done or storage in kept}
        fresh = {storage for storage in touched[op] if storage in live and not users[storage] & done}
        dying = {storage for storage in (over or {}).get(op, ()) if users[storage] - done == {op}}
        return sum(counted[storage] for storage in (live - fresh if dying - kept else live))

    @cache
    def rest(done: frozenset[int]) -> int:
        ready = [op for op in everything - done if before[op] <= done]
        return min((max(while_running(done, op), rest(done | {op})) for op in ready), default=0)

    return rest(frozenset())


def layered_graph(seed: int, ops: int, width: int) -> Graph:
    """Ops of one output each that read two or three of the latest `width` tensors: with many orders."""
    draw = Random(seed)
    tensors = [Tensor("x", (1,), "int8", 1, "x")]
    made = []
    for number in range(ops):
        read = draw.sample(tensors[-width:], min(len(tensors[-width:]), draw.choice([1, 2, 2, 3])))
        size = draw.randint(1, 100)
        tensors.append(Tensor(f"t{number}", (size,), "int8", size, f"t{number}"))
        made.append(Op(f"op{number}", "mix", tuple(tensor.name for tensor in read), (f"t{number}",)))
    storages = [Storage("x", 1, Role.INPUT)]
    storages += [Storage(each.name, each.nbytes, Role.ACTIVATION) for each in tensors[1:-1]]
    storages.append(Storage(tensors[-1].name, tensors[-1].nbytes, Role.OUTPUT))
    return check_graph(
        Graph("layers", tuple(storages), tuple(tensors), tuple(made), ("x",), (tensors[-1].name,))
    )


def orders(graph: Graph) -> Iterator[list[int]]:
    """Every order that keeps what `needs` says."""
    before = needs(graph)

    def grow(order: list[int]) -> Iterator[list[int]]:
        if len(order) == len(before):
            yield list(order)
        for op in range(len(before)):
            if op not in order and before[op] <= set(order):
                yield from grow([*order, op])

    yield from grow([])
