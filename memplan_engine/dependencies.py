"""What each op has to wait for: the ops that make what it reads, and the hazards of writing in place."""

from __future__ import annotations

from memplan_engine.graph import Graph


def dependencies(graph: Graph) -> list[tuple[int, ...]]:
    """For each op, by index, the ops that must have run before it; O(ops + reads).

    An op depends on the makers of its inputs, on whoever last wrote in place to the storages that it reads,
    and, when it writes in place itself, on everybody who has read that storage since.
    """
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    maker: dict[str, int] = {}
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    found: list[tuple[int, ...]] = []
    for index, op in enumerate(graph.ops):
        before: dict[int, None] = {}
        for name in (*op.inputs, *op.mutates):
            before |= dict.fromkeys(at for at in (maker.get(name), writer.get(home[name])) if at is not None)
            readers.setdefault(home[name], []).append(index)
        for name in op.mutates:
            before |= dict.fromkeys(readers[home[name]])
            readers[home[name]], writer[home[name]] = [index], index
        maker |= dict.fromkeys(op.outputs, index)
        before.pop(index, None)
        found.append(tuple(before))
    return found
