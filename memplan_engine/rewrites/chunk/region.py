"""A region of a graph that can run in pieces: ops that know the same rows, grown from one tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

from memplan_engine.graph import Tensor
from memplan_engine.op_kinds.ordered import plain_kind
from memplan_engine.rewrites.chunk.forms import Labels
from memplan_engine.rewrites.chunk.row_reads import Rows, is_mean_loss, weight_of

_COPYING = frozenset({"reshape", "flatten", "contiguous"})
"""Kinds that copy where they have to, which they have not for one row: pieces have two at least."""


@dataclass(frozen=True, slots=True)
class Region:
    """`ops`, by index, run in pieces; `split` has the dimension along which a tensor that one of them reads
    or makes is cut, `sums` what is the sum over pieces. All dimensions that are cut are multiples of
    `units`: no more pieces can be taken. `bases` are the tensors that ops of it make in storages of their
    own, by storage; `whole` are what ops, by index, read the whole of though others read it in pieces."""

    ops: tuple[int, ...]
    split: dict[str, int]
    sums: tuple[str, ...]
    units: int
    bases: dict[str, str]
    whole: frozenset[tuple[int, str]]


@dataclass(slots=True)
class _Growing:
    rows: Rows
    least: int
    units: int = 0
    labels: dict[int, str] = field(default_factory=dict)
    split: dict[str, int] = field(default_factory=dict)
    whole: dict[str, list[int]] = field(default_factory=dict)
    sums: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)
    """Targets of losses, whose weights are counted before the first piece."""

    def join(self, index: int, name: str) -> list[str]:
        """Let an op in for the rows of the tensor `name`; the tensors that are cut for it, [] where it stays
        outside."""
        form, op = self.rows.form(index), self.rows.graph.ops[index]
        if form is None:
            return []
        names = (*self.rows.reads[index], *op.outputs)
        known = dict(zip(names, (*form.reads, *form.makes), strict=True))
        label = known[name][self.split[name]]
        if label is None:
            return []
        cut = {each: labels.index(label) for each, labels in known.items() if label in labels}
        units = gcd(self.units, *(self._size(each, dim) for each, dim in cut.items()))
        whole = {each for each in self.rows.reads[index] if each not in cut} - self._weights(index)
        sums = {each for each in op.outputs if each not in cut}
        if units < self.least or not self._agree(index, cut, whole, sums, known, label):
            return []
        if label not in form.sums and any(self._is_asked_for(each) for each in sums):
            return []
        targets = {self.rows.reads[index][1]} if is_mean_loss(op) else set()
        if any(map(self._inside, targets)) or not self.early.isdisjoint(op.outputs):
            return []
        self.early |= targets
        new = [each for each in cut if each not in self.split]
        self.units, self.labels[index] = units, label
        self.split |= cut
        for each in whole:
            self.whole.setdefault(each, []).append(index)
        self.sums |= sums - {weight_of(op)}
        return [*new, name]

    def _agree(
        self,
        index: int,
        cut: dict[str, int],
        whole: set[str],
        sums: set[str],
        known: dict[str, Labels],
        label: str,
    ) -> bool:
        """Whether an op fits to those that are in: no tensor is cut in two ways, none that pieces make is
        read whole, and no sum before it is complete."""
        if any(self.split.get(each, dim) != dim or each in self.sums for each, dim in cut.items()):
            return False
        if any(known[each].count(label) > 1 for each in cut):
            return False
        if any(each in self.sums or (each in self.split and self._inside(each)) for each in whole):
            return False
        op = self.rows.graph.ops[index]
        read_early = (sums - {weight_of(op)}) & self.split.keys()
        return self.whole.keys().isdisjoint(op.outputs) and not read_early

    def _weights(self, index: int) -> set[str]:
        """The weights of all rows that an op reads: they are known before."""
        ops, maker = self.rows.graph.ops, self.rows.maker
        read = (each for each in self.rows.reads[index] if each in maker)
        return {each for each in read if each == weight_of(ops[maker[each]])}

    def _inside(self, name: str) -> bool:
        return self.rows.maker.get(name) in self.labels

    def _size(self, name: str, dim: int) -> int:
        return self.rows.tensors[name].shape[dim]

    def _is_asked_for(self, name: str) -> bool:
        return bool(self.rows.readers.get(name)) or name in self.rows.graph.outputs


def grow(rows: Rows, seed: str, dim: int, window: tuple[int, int], least: int) -> Region | None:
    """The region around the tensor `seed` cut along `dim`, of the ops from `window[0]` to `window[1]`, such
    that at least `least` pieces can be taken; None where there is none. O(ops in it + ops in the graph)."""
    growing = _Growing(rows, least, rows.tensors[seed].shape[dim])
    growing.split[seed] = dim
    queue = [seed]
    while queue:
        name = queue.pop(0)
        makers = [rows.maker[name]] if name in rows.maker else []
        for index in (*makers, *rows.readers.get(name, ())):
            if index not in growing.labels and window[0] <= index <= window[1]:
                queue += [each for each in growing.join(index, name) if each not in queue and each != name]
    return _settled(rows, growing, rows.maker.get(seed))


def _settled(rows: Rows, growing: _Growing, home: int | None) -> Region | None:
    """What is left without ops that wait for something outside that waits for the region."""
    inside = set(growing.labels)
    while home in inside and (between := _between(rows, inside)):
        late = _reached(rows, between, min(between), max(inside))
        inside -= late
    if home not in inside:
        return None
    inside = _without_views(rows, inside)
    return _checked(rows, growing, inside) if home in inside and len(inside) > 1 else None


def _without_views(rows: Rows, inside: set[int]) -> set[int]:
    """`inside` without views that none of them reads, and those of what is made outside: what these show is
    cut as it is."""
    ops, tensors = rows.graph.ops, rows.tensors
    while True:
        read = {name for index in inside for name in rows.reads[index]}
        made = {
            tensors[name].storage
            for index in inside
            if not rows.is_view(index)
            for name in ops[index].outputs
        }
        gone = {
            index
            for index in inside
            if rows.is_view(index)
            and (read.isdisjoint(ops[index].outputs) or tensors[ops[index].outputs[0]].storage not in made)
        }
        if not gone:
            return inside
        inside = inside - gone


def _between(rows: Rows, inside: set[int]) -> set[int]:
    """The ops outside that need what the region makes and that the region needs."""
    first, last = min(inside), max(inside)
    behind = _reached(rows, inside, first, last) - inside
    needed: set[int] = set()
    for index in range(last, first - 1, -1):
        if index in inside or index in needed:
            needed.update(rows.before[index])
    return behind & needed


def _reached(rows: Rows, start: set[int], first: int, last: int) -> set[int]:
    """`start` and all from `first` to `last` that wait for one of them."""
    found = set(start)
    for index in range(first, last + 1):
        if index not in found and not found.isdisjoint(rows.before[index]):
            found.add(index)
    return found


def _checked(rows: Rows, growing: _Growing, inside: set[int]) -> Region | None:
    """The region of the ops `inside`; None where something writes over what only pieces are there of, or a
    result is laid out with holes."""
    ops, tensors = rows.graph.ops, rows.tensors
    touched = {name for index in inside for name in (*rows.reads[index], *ops[index].outputs)}
    split = {name: dim for name, dim in growing.split.items() if name in touched}
    sums = tuple(name for index in sorted(inside) for name in ops[index].outputs if name in growing.sums)
    bases: dict[str, str] = {}
    for index in sorted(inside):
        read = {tensors[each].storage for each in ops[index].inputs}
        for name in ops[index].outputs:
            if tensors[name].storage not in read:
                bases.setdefault(tensors[name].storage, name)
    for index, op in enumerate(ops):
        written = {tensors[name].storage for name in op.mutates}
        if (index in inside and not written <= bases.keys()) or (
            index not in inside and not written.isdisjoint(bases)
        ):
            return None
    if not all(_is_dense(tensors[name]) for name in bases.values()):
        return None
    if any(tensors[name].strides is not None for name in sums):
        return None
    units = gcd(*(tensors[name].shape[dim] for name, dim in split.items()))
    if any(plain_kind(ops[index].kind) in _COPYING and not rows.is_view(index) for index in inside):
        units = units // 2 if units % 2 == 0 else 1
    whole = {(index, name) for name in split for index in growing.whole.get(name, ()) if index in inside}
    return Region(tuple(sorted(inside)), split, sums, units, bases, frozenset(whole)) if units > 1 else None


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill its storage, in whatever order of its dimensions."""
    if tensor.strides is None:
        return tensor.offset == 0
    expected = 1
    for stride, size in sorted(zip(tensor.strides, tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return tensor.offset == 0
