"""For the checker: what it can find wrong, and how each is found but for wrong reads.

A reused graph still is the original one, its tensors lie where they may, and no op writes over what it, or
another op of its step, touches: first which bytes a tensor takes, which an op writes, and where concatenated
blocks go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import TypeVar

from memplan_engine.graph import Graph, Op, Tensor, span
from memplan_engine.rewrites.reuse.kinds import is_concat, is_elementwise


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
    expected = own_places(original)
    places = {}
    for tensor in reused.tensors:
        memory, base = bases[tensor.storage]
        length = expected[tensor.name].high - expected[tensor.name].low
        places[tensor.name] = Place(memory, base + tensor.offset, base + tensor.offset + length)
    return places


def writes(op: Op, expected: Mapping[str, Place]) -> list[str]:
    """The tensors that `op` writes, given the places they have in the original graph: those it mutates, and
    its outputs, unless they are views of what it reads."""
    inputs = {expected[name].memory for name in (*op.inputs, *op.mutates)}
    fresh = [name for name in op.outputs if expected[name].memory not in inputs or is_concat(op.kind)]
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
            return list(accumulate((part.nbytes for part in parts), initial=0))[:-1]
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


class Rule(StrEnum):
    """What holds of a graph, or of a plan, in which memory is reused soundly."""

    SAME_GRAPH = "ops, tensors and their layouts are those of the original graph"
    RANGE = "every tensor lies inside its storage"
    ALIGNMENT = "what began a storage still begins at a multiple of its alignment"
    READ = "a read finds the value that the graph means"
    RETURNED = "the outputs are there at the end"
    CALLERS = "inputs and constants are left as the graph leaves them"
    OVERWRITES = "only elementwise ops write over what they read, element by element"
    UNSAID = "an op that writes over an input says so in `mutates`"
    RACE = "no op writes what another op of the same step touches"


@dataclass(frozen=True, slots=True)
class Breach:
    """A breach of `rule` at `step` by `op` ("" for the caller) in its use of `tensor`.

    From byte `byte` of the tensor on, its place holds what `overwritten_by` put there: an op, "the caller",
    or "" for nothing at all. Where no value is lost it is the op, tensor or storage that is in the way.
    """

    rule: Rule
    step: int
    op: str
    tensor: str
    overwritten_by: str = ""
    byte: int = 0

    def __str__(self) -> str:
        who = f"op {self.op!r}" if self.op else "the caller"
        blame = f"; in the way: {self.overwritten_by}" if self.overwritten_by else ""
        if self.rule in (Rule.READ, Rule.RETURNED, Rule.CALLERS):
            blame = f"; byte {self.byte} was written by {self.overwritten_by or 'nothing'}"
        return f"step {self.step}: {who}, tensor {self.tensor!r}: broken: {self.rule}{blame}"


def not_the_same(original: Graph, reused: Graph) -> list[Breach]:
    """What differs beyond storages, offsets and `mutates`: the ops in their order, the tensors, the lists."""
    before, after = {t.name: t for t in original.tensors}, {t.name: t for t in reused.tensors}
    breaches = [
        Breach(Rule.SAME_GRAPH, 0, "", name)
        for name in {**before, **after}
        if name not in before or name not in after or _shape(before[name]) != _shape(after[name])
    ]
    storages = {storage.name for storage in reused.storages}
    breaches += [Breach(Rule.RANGE, 0, "", t.name) for t in reused.tensors if t.storage not in storages]
    if len(original.ops) != len(reused.ops):
        breaches.append(Breach(Rule.SAME_GRAPH, 0, "", ""))
    for one, other in zip(original.ops, reused.ops, strict=False):
        same = (one.name, one.kind, one.inputs, one.outputs) == (
            other.name, other.kind, other.inputs, other.outputs
        )  # fmt: skip
        if not same or not set(one.mutates) <= set(other.mutates) <= {*one.mutates, *one.inputs}:
            breaches.append(Breach(Rule.SAME_GRAPH, 0, other.name, ""))
    lists = [(graph.inputs, graph.outputs, graph.constants) for graph in (original, reused)]
    if lists[0] != lists[1]:
        breaches.append(Breach(Rule.SAME_GRAPH, 0, "", ""))
    return breaches


def misplaced(original: Graph, reused: Graph, places: Mapping[str, Place], alignment: int) -> list[Breach]:
    """Tensors of `reused` that leave their storage, and those that began a storage of `original` at an
    alignment that their place no longer keeps. `alignment` is that of storages without one of their own."""
    storages = {storage.name: storage for storage in reused.storages}
    alignments = {storage.name: storage.alignment or alignment for storage in original.storages}
    base = {tensor.name: tensor for tensor in original.tensors}
    breaches = []
    for tensor in reused.tensors:
        place, storage = places[tensor.name], storages[tensor.storage]
        size = place.high - place.low
        # What has no bytes touches none, wherever it points: an empty slice of an empty tensor.
        if size and tensor.offset + size > storage.nbytes:
            breaches.append(Breach(Rule.RANGE, 0, "", tensor.name, storage.name))
        needed = alignments[base[tensor.name].storage]
        on_its_own = place.memory == storage.name
        aligned = place.low % needed == 0 and (
            not on_its_own or (storage.alignment or alignment) % needed == 0
        )
        if base[tensor.name].offset == 0 and not aligned:
            breaches.append(Breach(Rule.ALIGNMENT, 0, "", tensor.name, storage.name))
    return breaches


def _shape(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.nbytes, tensor.strides


Places = Mapping[str, Place]


def overwrites(
    op: Op, now: Op, step: int, tensors: Mapping[str, Tensor], places: tuple[Places, Places]
) -> list[Breach]:
    """What `op` writes over that it reads, or writes twice, where the original graph does not.

    `now` is the op as the reused graph has it; `places` are those that are meant and those of now.
    """
    expected, actual = places
    breaches: list[Breach] = []
    written = writes(op, expected)
    offsets = block_offsets(op, tensors)
    blocks = defaultdict[str, set[int]](set)
    for name, low in zip(op.inputs, offsets or (), strict=False):
        blocks[name].add(low)
    read = dict.fromkeys((*op.inputs, *op.mutates))
    outputs = [(name, actual[name]) for name in written]
    for name, target in _meeting([(name, actual[name]) for name in read], outputs):
        if name == target or not _new(name, target, places):
            continue
        if offsets is not None and target == op.outputs[0]:
            in_its_block = blocks[name] == {actual[name].low - actual[target].low}
            if not (row_by_row(tensors[name]) and in_its_block):
                breaches.append(Breach(Rule.OVERWRITES, step, op.name, name, op.name))
        elif not (is_elementwise(op.kind) and _element_by_element(name, target, tensors, actual)):
            breaches.append(Breach(Rule.OVERWRITES, step, op.name, name, op.name))
        elif not any(actual[mutated] == actual[name] for mutated in now.mutates):
            breaches.append(Breach(Rule.UNSAID, step, op.name, name))
    for one, other in _meeting(outputs, outputs):
        if one < other and _new(one, other, places):
            breaches.append(Breach(Rule.OVERWRITES, step, op.name, one, other))
    return breaches


def races(
    ops: Sequence[Op], step: int, tensors: Mapping[str, Tensor], places: tuple[Places, Places]
) -> list[Breach]:
    """The tensors that one of `ops`, which run at once, writes where another one reads or writes, and where
    in the original graph the two have nothing to do with each other."""
    if len(ops) == 1:
        return []
    expected, actual = places
    makes = [((op.name, target), place) for op in ops for target, place in _written(op, tensors, places)]
    reads = [
        ((op.name, name), actual[name]) for op in ops for name in dict.fromkeys((*op.inputs, *op.mutates))
    ]
    return [
        Breach(Rule.RACE, step, other, name, one)
        for (one, target), (other, name) in _meeting(makes, reads + makes)
        if one != other and not expected[target].meets(expected[name])
    ]


Key = TypeVar("Key")


def _meeting(ones: Sequence[tuple[Key, Place]], others: Sequence[tuple[Key, Place]]) -> list[tuple[Key, Key]]:
    """The pairs of one of `ones` and one of `others` that have a byte in common, in their order: all in the
    order of their first bytes, each held until the bytes have passed its end."""
    rows = sorted(
        (place.memory, place.low, place.high, side, number)
        for side, keyed in enumerate((ones, others))
        for number, (_, place) in enumerate(keyed)
        if place.low < place.high
    )
    held: tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]] = ([], [])
    pairs = []
    for memory, low, high, side, number in rows:
        facing = held[1 - side]
        facing[:] = [row for row in facing if row[0] == memory and row[1] > low]
        pairs += [(number, row[2]) if side == 0 else (row[2], number) for row in facing]
        held[side].append((memory, high, number))
    return [(ones[one][0], others[other][0]) for one, other in sorted(pairs)]


def _written(op: Op, tensors: Mapping[str, Tensor], places: tuple[Places, Places]) -> list[tuple[str, Place]]:
    """What `op` really writes: a concatenation leaves alone the blocks that lie in its output already."""
    expected, actual = places
    offsets = block_offsets(op, tensors)
    written = []
    for target in writes(op, expected):
        if offsets is None or target in op.mutates:
            written.append((target, actual[target]))
            continue
        for name, low in zip(op.inputs, offsets, strict=True):
            begin = actual[target].low + low
            block = Place(actual[target].memory, begin, begin + tensors[name].nbytes)
            if block != actual[name] or not row_by_row(tensors[name]):
                written.append((target, block))
    return written


def _new(name: str, target: str, places: tuple[Places, Places]) -> bool:
    """Whether the two tensors now share bytes in a way in which they do not in the original graph."""
    expected, actual = places
    before = expected[name].as_seen_from(expected[target])
    return actual[name].meets(actual[target]) and actual[name].as_seen_from(actual[target]) != before


def _element_by_element(name: str, target: str, tensors: Mapping[str, Tensor], real: Places) -> bool:
    one, other = tensors[name], tensors[target]
    same = (one.shape, one.nbytes, layout(one)) == (other.shape, other.nbytes, layout(other))
    return same and real[name] == real[target]
