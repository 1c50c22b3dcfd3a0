"""For the checker: which bytes a tensor takes, which an op writes, and where concatenated blocks go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memplan_engine.graph import Graph, Op, Tensor, span
from memplan_engine.rewrites.reuse.kinds import is_concat


@dataclass(frozen=True, slots=True)
class Place:
    """The bytes `[low, high)` of the memory `memory`."""

    memory: str
    low: int
    high: int

    def meets(self, other: Place) -> bool:
        """Whether both have a byte in common."""
        return self.memory == other.memory and max(self.low, other.low) < min(self.high, other.high)

    def as_seen_from(self, other: Place) -> tuple[bool, int]:
        """Where this begins, counted from where `other` does; (False, 0) in another memory."""
        together = self.memory == other.memory
        return together, self.low - other.low if together else 0


def own_places(graph: Graph) -> dict[str, Place]:
    """The place of every tensor of `graph` in its storage, from its first element to its last."""
    sizes = {storage.name: storage.nbytes for storage in graph.storages}
    return {
        t.name: Place(t.storage, t.offset, min(span(t)[1], max(sizes[t.storage], t.offset)))
        for t in graph.tensors
    }


def places_in(original: Graph, reused: Graph, bases: Mapping[str, tuple[str, int]]) -> dict[str, Place]:
    """The place of every tensor where each storage of `reused` begins at `bases`: a memory and a byte."""
    meant = own_places(original)
    places = {}
    for tensor in reused.tensors:
        memory, base = bases[tensor.storage]
        length = meant[tensor.name].high - meant[tensor.name].low
        places[tensor.name] = Place(memory, base + tensor.offset, base + tensor.offset + length)
    return places


def writes(op: Op, meant: Mapping[str, Place]) -> list[str]:
    """The tensors that `op` writes, given the places they have in the original graph: those it mutates, and
    its outputs, unless they are views of what it reads."""
    read = {meant[name].memory for name in (*op.inputs, *op.mutates)}
    fresh = [name for name in op.outputs if meant[name].memory not in read or is_concat(op.kind)]
    return list(dict.fromkeys((*op.mutates, *fresh)))


def block_offsets(op: Op, tensors: Mapping[str, Tensor]) -> list[int] | None:
    """At which byte of its output each input of a concatenation goes; None when `op` is none, or its inputs
    do not become blocks of bytes in the output."""
    if not is_concat(op.kind) or len(op.outputs) != 1 or not op.inputs:
        return None
    whole = tensors[op.outputs[0]]
    parts = [tensors[name] for name in op.inputs]
    if not row_by_row(whole):
        return None
    if sum(part.nbytes for part in parts) != whole.nbytes or any(p.dtype != whole.dtype for p in parts):
        return None
    axis = next((dim for dim, size in enumerate(whole.shape) if size != 1), 0)
    # All dimensions before the axis are 1: the axis is the first other one, or one of the ones before it.
    for dim in range(axis + 1):
        head, tail = whole.shape[:dim], whole.shape[dim + 1 :]
        if all(
            len(p.shape) == len(whole.shape) and p.shape[:dim] == head and p.shape[dim + 1 :] == tail
            for p in parts
        ):
            return [sum(p.nbytes for p in parts[:place]) for place in range(len(parts))]
    return None


def layout(tensor: Tensor) -> list[int]:
    """The strides, in elements, of the dimensions of more than one element."""
    strides = tensor.strides if tensor.strides is not None else _row_major(tensor)
    return [stride for size, stride in zip(tensor.shape, strides, strict=True) if size != 1]


def row_by_row(tensor: Tensor) -> bool:
    """Whether the elements of `tensor` lie one behind the other, the last dimension running fastest."""
    return layout(tensor) == [s for n, s in zip(tensor.shape, _row_major(tensor), strict=True) if n != 1]


def _row_major(tensor: Tensor) -> list[int]:
    strides, step = [], 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step *= size
    return strides[::-1]
