"""For the checker: whether a reused graph still is the original one, and where its tensors may lie."""

from __future__ import annotations

from collections.abc import Mapping

from memplan_engine.graph import Graph, Tensor
from memplan_engine.rewrites.reuse.breaches import Breach, Rule
from memplan_engine.rewrites.reuse.places import Place


def not_the_same(original: Graph, reused: Graph) -> list[Breach]:
    """What differs beyond storages, offsets and `mutates`: the ops in their order, the tensors, the lists."""
    before, after = {t.name: t for t in original.tensors}, {t.name: t for t in reused.tensors}
    found = [
        Breach(Rule.SAME_GRAPH, 0, "", name)
        for name in {**before, **after}
        if name not in before or name not in after or _shape(before[name]) != _shape(after[name])
    ]
    storages = {storage.name for storage in reused.storages}
    found += [Breach(Rule.RANGE, 0, "", t.name) for t in reused.tensors if t.storage not in storages]
    if len(original.ops) != len(reused.ops):
        found.append(Breach(Rule.SAME_GRAPH, 0, "", ""))
    for one, other in zip(original.ops, reused.ops, strict=False):
        same = (one.name, one.kind, one.inputs, one.outputs) == (
            other.name, other.kind, other.inputs, other.outputs
        )  # fmt: skip
        if not same or not set(one.mutates) <= set(other.mutates) <= {*one.mutates, *one.inputs}:
            found.append(Breach(Rule.SAME_GRAPH, 0, other.name, ""))
    lists = [(graph.inputs, graph.outputs, graph.constants) for graph in (original, reused)]
    if lists[0] != lists[1]:
        found.append(Breach(Rule.SAME_GRAPH, 0, "", ""))
    return found


def misplaced(original: Graph, reused: Graph, places: Mapping[str, Place], alignment: int) -> list[Breach]:
    """Tensors of `reused` that leave their storage, and those that began a storage of `original` at an
    alignment that their place no longer keeps. `alignment` is that of storages without one of their own."""
    storages = {storage.name: storage for storage in reused.storages}
    asked = {storage.name: storage.alignment or alignment for storage in original.storages}
    base = {tensor.name: tensor for tensor in original.tensors}
    found = []
    for tensor in reused.tensors:
        place, storage = places[tensor.name], storages[tensor.storage]
        size = place.high - place.low
        # What has no bytes touches none, wherever it points: an empty slice of an empty tensor.
        if size and tensor.offset + size > storage.nbytes:
            found.append(Breach(Rule.RANGE, 0, "", tensor.name, storage.name))
        needed = asked[base[tensor.name].storage]
        on_its_own = place.memory == storage.name
        kept = place.low % needed == 0 and (not on_its_own or (storage.alignment or alignment) % needed == 0)
        if base[tensor.name].offset == 0 and not kept:
            found.append(Breach(Rule.ALIGNMENT, 0, "", tensor.name, storage.name))
    return found


def _shape(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.nbytes, tensor.strides
