"""The checker of graphs whose regions run in pieces. It works from both graphs alone, and shares no code with
what wrote the second: it goes through it op by op and says of each tensor which rows of which tensor of the
first it has."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from memplan_engine.graph import Arguments, Graph, Op, Tensor
from memplan_engine.op_kinds.ordered import draws, has_effect, plain_kind
from memplan_engine.rewrites.chunk.check_rows import Cut, Made, Sum, made_of
from memplan_engine.rewrites.chunk.check_views import rows_shown, strides_of

_PIECE = re.compile(r"_chunk\d+(_\d+)?$")
"""What the name of an op that runs on a piece ends with, behind that of the op that it is."""
_FILLED = {"aten.ones_like": 1, "aten.zeros_like": 0}
_ADDING = {"aten.addmm_": "aten.mm", "aten.baddbmm_": "aten.bmm"}
_OWN = {
    f"aten.{kind}"
    for kind in ("slice", "zeros", "empty", "empty_strided", "copy_", "add_", "ne", "sum", "div")
}
"""Kinds of ops that a chunked graph has and the first one has not."""


@dataclass(frozen=True, slots=True)
class _Is:
    """What a tensor has: the rows `part` of the tensor `name` of the first graph, all of it (None), or what
    comes of a part of the rows (`Sum`). With `role` it is something beside: "kept" and "weight" of the loss
    `name`, or its sum."""

    name: str
    part: Made = None
    role: str = ""


def check_chunk(original: Graph, chunked: Graph) -> list[str]:
    """What is wrong with `chunked` in place of `original`; [] when nothing is.

    Each op of it is one of the original's that reads the same values; one on a piece, which reads the same
    rows of all that is cut; or one that cuts, fills, or adds up. Slices are read as the rows that they are,
    what pieces fill is filled once and wholly before it is read, and so is a sum, which begins at zero. What
    is random, has an effect or writes over what others see runs once and in order. The same is returned.
    """
    if (original.inputs, original.constants) != (chunked.inputs, chunked.constants):
        return ["the inputs or weights differ"]
    check = _Check(original, chunked)
    for op in chunked.ops:
        try:
            check.run(op)
        except ValueError as error:
            return [f"{op.name}: {error}"]
    return check.end()


class _Check:
    def __init__(self, original: Graph, chunked: Graph) -> None:
        self.original, self.chunked = original, chunked
        self.old = {tensor.name: tensor for tensor in original.tensors}
        self.new = {tensor.name: tensor for tensor in chunked.tensors}
        self.twins = {op.name: op for op in original.ops}
        self.writes_before = _writes(original, self.old)
        self.value: dict[str, _Is] = {name: _Is(name) for name in (*original.inputs, *original.constants)}
        self.writes: Counter[str] = Counter()
        self.open: dict[str, list[tuple[Fraction, Fraction]]] = {}
        """Of each storage that pieces fill or add to the parts that it has, until these are all."""
        self.adds: set[str] = set()
        self.done: list[str] = []
        self.covered: dict[str, list[tuple[Fraction, Fraction]]] = {}

    def run(self, op: Op) -> None:
        twin = self.twins.get(op.name)
        if twin is not None and self._is_twin(op, twin):
            self._whole(op, twin)
        elif twin is not None and twin.kind in _FILLED and op.kind == "aten.full":
            if op.inputs or dict(op.arguments).get("fill") != (_FILLED[twin.kind],):
                raise ValueError("it fills in another number")
            self.done.append(twin.name)
            self._give(op, twin.outputs, None)
        elif _PIECE.search(op.name) and _PIECE.sub("", op.name) in self.twins:
            self._piece(op, self.twins[_PIECE.sub("", op.name)])
        elif op.kind in _OWN:
            self._own(op)
        else:
            raise ValueError("no op of the original")

    @staticmethod
    def _is_twin(op: Op, twin: Op) -> bool:
        return (op.kind, len(op.inputs), op.arguments) == (twin.kind, len(twin.inputs), twin.arguments)

    def _whole(self, op: Op, twin: Op) -> None:
        for name, asked in zip((*op.inputs, *op.mutates), (*twin.inputs, *twin.mutates), strict=True):
            found = self._read(name)
            if self._weighs(found, asked):
                continue
            if found.role or found.part is not None or not self._same(found.name, asked):
                raise ValueError(f"it reads {name}, which is not all of {asked}")
            self._check_writes(twin, asked, name)
        self.done.append(twin.name)
        self._give(op, twin.outputs, None)
        for name in op.mutates:
            self.writes[self.new[name].storage] += 1

    def _give(self, op: Op, names: tuple[str, ...], part: Made) -> None:
        for name, twin in zip(op.outputs, names, strict=True):
            self._form(name, twin, part)
            self.value[name] = _Is(twin, part)

    def _form(self, name: str, twin: str, part: Made) -> None:
        """Raise ValueError where a tensor has not the shape of its part."""
        own, whole = self.new[name], self.old[twin]
        shape = list(whole.shape)
        if isinstance(part, Cut):
            rows = (part.high - part.low) * shape[part.dim]
            if rows.denominator != 1:
                raise ValueError(f"{name} is not of whole rows")
            shape[part.dim] = int(rows)
        if list(own.shape) != shape or own.dtype != whole.dtype:
            raise ValueError(f"{name} has not the form of its part of {twin}")

    def _read(self, name: str) -> _Is:
        storage = self.new[name].storage
        if storage in self.open:
            raise ValueError(f"it reads {name} before all pieces are in it")
        if name not in self.value:
            raise ValueError(f"it reads {name}, of which nothing is known")
        return self.value[name]

    def _same(self, name: str, other: str) -> bool:
        """Whether two tensors of the original show the same bytes in the same form."""
        if name == other:
            return True
        one, two = self.old[name], self.old[other]
        return (one.storage, one.shape, one.strides, one.offset, one.dtype) == (
            two.storage,
            two.shape,
            two.strides,
            two.offset,
            two.dtype,
        )

    def _check_writes(self, twin: Op, asked: str, name: str) -> None:
        """What is read was written over as often as in the original."""
        expected = self.writes_before[twin.name].get(self.old[asked].storage, 0)
        if self.writes[self.new[name].storage] != expected:
            raise ValueError(f"it reads {name} after other writes than in the original")

    def _piece(self, op: Op, twin: Op) -> None:
        reads = op.inputs
        adding = _ADDING.get(op.kind) == twin.kind
        if adding:
            reads = reads[1:]
        summed = _summed(twin)
        if not adding and (op.kind != twin.kind or op.arguments != (summed or twin.arguments)):
            raise ValueError(f"it is not what {twin.name} is")
        if len(reads) != len(twin.inputs):
            raise ValueError("it reads more or less than the whole op")
        if (draws(twin, False) and dict(twin.arguments).get("dropout_p") != (0,)) or has_effect(twin):
            raise ValueError("it draws random numbers, or has an effect, and runs more than once")
        cuts = [self._cut(twin, asked, name) for asked, name in zip(twin.inputs, reads, strict=True)]
        if self._is_view(twin):
            parts = self._shown(op, twin)
        else:
            read = [self.old[name].shape for name in twin.inputs]
            made = [self.old[name].shape for name in twin.outputs]
            parts = made_of(twin, read, made, cuts)
        self._cover(twin, next(cut for cut in cuts if cut is not None))
        if adding:
            self._add(op, twin.outputs[0], parts[0])
            return
        for name, asked, part in zip(op.outputs, twin.outputs, parts, strict=True):
            self._form(name, asked, part)
            role = "sum" if summed and asked == twin.outputs[0] and isinstance(part, Sum) else ""
            self.value[name] = _Is(asked, part, role)
        for name in op.mutates:
            self.writes[self.new[name].storage] += 1

    def _cut(self, twin: Op, asked: str, name: str) -> Cut | None:
        """The rows of `asked` that a piece reads as `name`."""
        found = self._read(name)
        if self._weighs(found, asked):
            return None
        if found.role or isinstance(found.part, Sum) or not self._same(found.name, asked):
            raise ValueError(f"it reads {name}, which is no part of {asked}")
        self._check_writes(twin, asked, name)
        return found.part

    def _weighs(self, found: _Is, asked: str) -> bool:
        """Whether something is the weight of all rows that `asked` is."""
        return found.role == "weight" and self.twins[found.name].outputs[1] == asked

    def _cover(self, twin: Op, cut: Cut) -> None:
        parts = self.covered.setdefault(twin.name, [])
        if (parts and parts[-1][1] != cut.low) or (not parts and cut.low):
            raise ValueError("rows are left out, or run twice")
        parts.append((cut.low, cut.high))

    def _is_view(self, op: Op) -> bool:
        home = {self.old[name].storage for name in op.inputs}
        return not op.mutates and all(self.old[name].storage in home for name in op.outputs)

    def _shown(self, op: Op, twin: Op) -> list[Made]:
        """What the outputs of a view show, by where their elements lie."""
        found = self.value[op.inputs[0]]
        if self.new[op.outputs[0]].storage != self.new[op.inputs[0]].storage:
            raise ValueError("it shows another storage than it reads")
        assert isinstance(found.part, Cut)
        return [
            rows_shown(
                self.new[name], self.old[asked], self.new[op.inputs[0]], self.old[found.name], found.part
            )
            for name, asked in zip(op.outputs, twin.outputs, strict=True)
        ]

    def _own(self, op: Op) -> None:
        if op.kind in ("aten.zeros", "aten.empty", "aten.empty_strided") and not op.inputs:
            self.open[self.new[op.outputs[0]].storage] = []
            if op.kind == "aten.zeros":
                self.adds.add(self.new[op.outputs[0]].storage)
            self.value[op.outputs[0]] = _Is("", None, "into")
        elif op.kind == "aten.slice":
            self._slice(op)
        elif op.kind == "aten.copy_":
            self._fill(op)
        elif op.kind == "aten.add_" and op.inputs[0] == op.mutates[0]:
            found = self._read(op.inputs[1])
            self._add(op, found.name, found.part, found.role)
        else:
            self._loss(op)

    def _slice(self, op: Op) -> None:
        told, whole = dict(op.arguments), op.inputs[0]
        (dim,), (low,), (high,) = told["dim"], told["start"], told["end"]
        tensor, own = self.new[whole], self.new[op.outputs[0]]
        size, strides = tensor.shape[dim], strides_of(tensor)
        item = tensor.nbytes // max(prod(tensor.shape), 1)
        shape = (*tensor.shape[:dim], high - low, *tensor.shape[dim + 1 :])
        place = tensor.offset + low * strides[dim] * item
        if not 0 <= low < high <= size or told["step"] != (1,) or own.shape != shape:
            raise ValueError("it is no slice of what it reads")
        if own.storage != tensor.storage or own.offset != place:
            raise ValueError("it does not show what it slices")
        if any(a != b for a, b, n in zip(strides_of(own), strides, shape, strict=True) if n > 1):
            raise ValueError("it does not show what it slices")
        part = Cut(dim, Fraction(low, size), Fraction(high, size))
        found = self.value[whole]
        if tensor.storage in self.open:
            self.value[op.outputs[0]] = _Is("", part, "into")
        elif found.role or found.part is not None:
            raise ValueError("it slices what is a part already")
        else:
            self.value[op.outputs[0]] = _Is(found.name, part)

    def _fill(self, op: Op) -> None:
        into, found = self.value[op.mutates[0]], self._read(op.inputs[1])
        if into.role != "into" or found.role or into.part != found.part or not isinstance(found.part, Cut):
            raise ValueError("it copies other rows than it has")
        storage = self.new[op.mutates[0]].storage
        self._take(storage, found.name, found.part.low, found.part.high, "")
        self.writes[storage] = self.writes[self.new[op.inputs[1]].storage]
        self.value[op.outputs[0]] = into

    def _add(self, op: Op, name: str, part: Made, role: str = "") -> None:
        storage = self.new[op.mutates[0]].storage
        if not isinstance(part, Sum) or storage not in self.adds or storage not in self.open:
            raise ValueError("it adds what is no part of a sum, or to what did not begin at zero")
        if self.new[op.mutates[0]].shape != self.old[name].shape:
            raise ValueError("it adds to something of another shape")
        self._take(storage, name, part.low, part.high, role)
        self.value.setdefault(op.outputs[0], self.value[op.mutates[0]])

    def _take(self, storage: str, name: str, low: Fraction, high: Fraction, role: str) -> None:
        """A part has come; with the last one the whole is there."""
        parts = self.open.get(storage)
        if parts is None or (parts[-1][1] if parts else 0) != low:
            raise ValueError("parts are left out, or come twice")
        parts.append((low, high))
        if high == 1:
            del self.open[storage]
            for each in self.chunked.tensors:
                if each.storage == storage and each.shape == self.old[name].shape:
                    self.value[each.name] = _Is(name, None, role)

    def _loss(self, op: Op) -> None:
        """The weight of all rows of a loss, and its mean: from the targets that are not left out."""
        first = self._read(op.inputs[0])
        if op.kind == "aten.ne" and not first.role and first.part is None:
            other = dict(op.arguments)["other"][0]
            losses = [
                each
                for each in self.original.ops
                if plain_kind(each.kind) == "nlllossforward"
                and self._same(each.inputs[1], first.name)
                and dict(each.arguments).get("ignore_index") == (other,)
                and len(each.inputs) == 2
                and op.name.startswith(f"{each.name}_kept")
            ]
            if losses:
                self.value[op.outputs[0]] = _Is(losses[0].name, None, "kept")
                return
        elif op.kind == "aten.sum" and first.role == "kept":
            self.value[op.outputs[0]] = _Is(first.name, None, "weight")
            return
        elif op.kind == "aten.div" and first.role == "sum" and first.part is None:
            weight = self._read(op.inputs[1])
            twin = self.twins.get(weight.name)
            of_it = twin is not None and weight.role == "weight" and twin.outputs[0] == first.name
            if of_it and twin is not None and dict(twin.arguments)["reduction"] == (1,):
                self.value[op.outputs[0]] = _Is(first.name)
                return
        raise ValueError("no op of the original, and none that pieces need")

    def end(self) -> list[str]:
        """What is wrong when all ops have run."""
        wrong = []
        ran = Counter(self.done)
        wrong += [f"{name}: runs {times} times" for name, times in ran.items() if times > 1]
        for op in self.original.ops:
            parts = self.covered.get(op.name)
            if parts and parts[-1][1] != 1:
                wrong.append(f"{op.name}: not all of its rows run")
            if not parts and not ran[op.name] and not self._is_view(op):
                wrong.append(f"{op.name}: does not run")
        for alike in ([op.name for op in self.original.ops if draws(op, False)], _effects(self.original)):
            if [name for name in self.done if name in set(alike)] != [n for n in alike if n in ran]:
                wrong.append(f"{alike[0]} and others like it do not run in their order")
        for name, asked in zip(self.chunked.outputs, self.original.outputs, strict=True):
            found = self.value.get(name)
            if found is not None and self._weighs(found, asked):
                continue
            if found is None or found.role or found.part is not None or not self._same(found.name, asked):
                wrong.append(f"{asked}: something else is returned")
            elif self.new[name].storage in self.open:
                wrong.append(f"{asked}: returned before all pieces are in it")
        return wrong


def _summed(op: Op) -> Arguments | None:
    """The arguments of a mean loss that sums instead; None of other ops."""
    told = dict(op.arguments)
    if plain_kind(op.kind) != "nlllossforward" or told.get("reduction") != (1,):
        return None
    return tuple((name, (2,) if name == "reduction" else value) for name, value in op.arguments)


def _effects(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops if has_effect(op)]


def _writes(graph: Graph, tensors: dict[str, Tensor]) -> dict[str, dict[str, int]]:
    """By op, how often the storages that are written at all were before it."""
    count: Counter[str] = Counter()
    found: dict[str, dict[str, int]] = {}
    for op in graph.ops:
        touched = {tensors[name].storage for name in (*op.inputs, *op.mutates)}
        found[op.name] = {storage: count[storage] for storage in touched if storage in count}
        for name in op.mutates:
            count[tensors[name].storage] += 1
    return found
