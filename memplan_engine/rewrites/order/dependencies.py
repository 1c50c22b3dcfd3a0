"""Which ops must run before which, whatever the order: the arcs that every order keeps."""

from __future__ import annotations

from memplan_engine.graph import Graph
from memplan_engine.rewrites.order.kinds import draws, has_effect


def order_dependencies(graph: Graph) -> list[tuple[int, ...]]:
    """For each op, by index, the ops that run before it in every order; O(ops + reads).

    An op runs after the makers of the tensors that it reads, and after the last op before it that wrote to a
    storage it touches; one that writes, after all that have touched the storage since. An output in a storage
    that the op does not read is a write: the first begins the storage. Ops that draw random numbers keep
    their order, and so do those that are there for an effect.
    """
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    maker: dict[str, int] = {}
    writer: dict[str, int] = {}
    touched: dict[str, list[int]] = {}
    latest: dict[str, int] = {}
    predecessors: list[tuple[int, ...]] = []
    for index, op in enumerate(graph.ops):
        read = {home[name]: None for name in (*op.inputs, *op.mutates)}
        made = {home[name]: None for name in op.outputs}
        written = {home[name]: None for name in op.mutates} | {s: None for s in made if s not in read}
        before = {maker[name]: None for name in (*op.inputs, *op.mutates) if name in maker}
        for storage in read | made:
            if storage in writer:
                before[writer[storage]] = None
            if storage in written:
                before |= dict.fromkeys(touched.get(storage, ()))
                writer[storage], touched[storage] = index, []
            touched.setdefault(storage, []).append(index)
        for chain, belongs in (("random", draws(op, not written)), ("effect", has_effect(op))):
            if belongs:
                if chain in latest:
                    before[latest[chain]] = None
                latest[chain] = index
        maker |= dict.fromkeys(op.outputs, index)
        before.pop(index, None)
        predecessors.append(tuple(before))
    return predecessors
