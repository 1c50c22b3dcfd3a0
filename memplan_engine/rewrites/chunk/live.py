"""The live bytes of a graph at each of its ops, fast enough to be asked for hundreds of graphs."""

from __future__ import annotations

import numpy as np

from memplan_engine.graph import PRODUCED, Graph, Role
from memplan_engine.problem import Ints


def live_bytes(graph: Graph) -> Ints:
    """Bytes of what ops make that are live while each op runs (int64, one per op): from the first op that
    touches a storage to the last, or to the end where it is returned. O(ops)."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, op in enumerate(graph.ops):
        for names in (op.inputs, op.mutates, op.outputs):
            for name in names:
                storage = home[name]
                first.setdefault(storage, index)
                last[storage] = index
    change = np.zeros(len(graph.ops) + 1, np.int64)
    for each in graph.storages:
        if each.role in PRODUCED and each.name in first:
            end = len(graph.ops) if each.role is Role.OUTPUT else last[each.name] + 1
            change[first[each.name]] += each.nbytes
            change[end] -= each.nbytes
    return np.cumsum(change[:-1])
