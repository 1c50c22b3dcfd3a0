"""Which ops of a rewritten graph write over an input."""

from __future__ import annotations

from memplan_engine.graph import PRODUCED, Graph
from memplan_engine.rewrites.reuse.kinds import is_concat


def writes_over(before: Graph, after: Graph) -> dict[str, str]:
    """The ops that in `after` write over an input, by name, with that input: their result begins a storage in
    `before` and lies in the very place of the input in `after`."""
    old = {tensor.name: tensor.storage for tensor in before.tensors}
    new = {tensor.name: tensor for tensor in after.tensors}
    made = {storage.name for storage in before.storages if storage.role in PRODUCED}
    over: dict[str, str] = {}
    for op in before.ops:
        if len(op.outputs) != 1 or op.mutates or is_concat(op.kind) or op.outputs[0] not in new:
            continue
        result = new[op.outputs[0]]
        place = (result.storage, result.offset, result.nbytes)
        for name in op.inputs:
            apart = old[name] != old[result.name] and {old[name], old[result.name]} <= made
            there = new[name]
            if apart and result.nbytes and (there.storage, there.offset, there.nbytes) == place:
                over[op.name] = name
    return over
