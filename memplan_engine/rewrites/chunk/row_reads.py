"""A graph as regions are looked for in it: who reads what, with views that show what another tensor shows
taken for that tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace

from memplan_engine.graph import Graph, Op, Tensor
from memplan_engine.op_kinds.ordered import plain_kind
from memplan_engine.rewrites.chunk.form_arguments import number
from memplan_engine.rewrites.chunk.forms import Form
from memplan_engine.rewrites.chunk.known_forms import form_of
from memplan_engine.rewrites.chunk.layer_forms import NONE
from memplan_engine.schedule import dependencies

FILLS = {"oneslike": 1, "zeroslike": 0}
"""Kinds that look at nothing of what they read but its form, with the value that they fill in."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """`reads` has, for each op, what it reads, by the first tensor that shows the same; `before` the ops that
    run before it in every order, where one that only fills in a number waits for nobody. `fixed` are ops that
    are in no region."""

    graph: Graph
    tensors: dict[str, Tensor]
    reads: tuple[tuple[str, ...], ...]
    readers: dict[str, list[int]]
    maker: dict[str, int]
    before: list[tuple[int, ...]]
    fixed: frozenset[int]
    forms: dict[int, Form | None]

    def form(self, index: int) -> Form | None:
        """That of an op, looked up once."""
        if index not in self.forms:
            op = replace(self.graph.ops[index], inputs=self.reads[index])
            known = index not in self.fixed and op.kind.startswith("aten.")
            self.forms[index] = form_of(op, self.tensors) if known else None
        return self.forms[index]

    def is_view(self, index: int) -> bool:
        """Whether an op only shows what it reads in another form."""
        op = self.graph.ops[index]
        read = {self.tensors[name].storage for name in op.inputs}
        made = [self.tensors[name].storage for name in op.outputs]
        return bool(made) and not op.mutates and read.issuperset(made)


def rows_of(graph: Graph, fixed: Set[str] = frozenset()) -> Rows:
    """`graph` made ready; `fixed` are names of ops that are in no region."""
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    same = _same(graph, tensors)
    reads = []
    for op in graph.ops:
        first = tuple(same.get(name, name) for name in op.inputs)
        reads.append(first if len(set(first)) == len(first) else op.inputs)
    readers: dict[str, list[int]] = {}
    for index, names in enumerate(reads):
        for name in names:
            readers.setdefault(name, []).append(index)
    plain = tuple(
        replace(op, inputs=() if plain_kind(op.kind) in FILLS else names)
        for op, names in zip(graph.ops, reads, strict=True)
    )
    maker = {name: index for index, op in enumerate(graph.ops) for name in op.outputs}
    before = dependencies(replace(graph, ops=plain))
    indices = frozenset(index for index, op in enumerate(graph.ops) if op.name in fixed)
    return Rows(graph, tensors, tuple(reads), readers, maker, before, indices, {})


def _same(graph: Graph, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Views → the first tensor of their storage that shows the same bytes in the same form, where nobody
    writes over these."""
    written = {tensors[name].storage for op in graph.ops for name in op.mutates}
    count = Counter(tensor.storage for tensor in graph.tensors)
    first: dict[tuple[object, ...], str] = {}
    same: dict[str, str] = {}
    made = (*graph.inputs, *graph.constants, *(name for op in graph.ops for name in op.outputs))
    for name in made:
        each = tensors[name]
        if count[each.storage] > 1 and each.storage not in written:
            form = (each.storage, each.shape, each.strides, each.offset, each.dtype)
            other = first.setdefault(form, name)
            if other != name:
                same[name] = other
    return same


def is_mean_loss(op: Op) -> bool:
    """Whether `op` sums a loss over its rows, or takes the mean of it, with the weight of all rows beside."""
    return plain_kind(op.kind) == "nlllossforward" and number(op, "reduction") != NONE


def weight_of(op: Op) -> str | None:
    """The tensor with the weight of all rows that a loss of `is_mean_loss` makes; None of other ops."""
    return op.outputs[1] if is_mean_loss(op) else None
