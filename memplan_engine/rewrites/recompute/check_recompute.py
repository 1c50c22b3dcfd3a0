"""The checker of graphs in which ops run again. It works from both graphs alone, and shares no code with what
wrote the second; what is known of op kinds is all that both go by."""

from __future__ import annotations

import re
from collections import Counter

from memplan_engine.graph import PRODUCED, Graph, Op, Tensor
from memplan_engine.op_kinds.generators import (
    GENERATOR_BYTES,
    KEEP_GENERATOR,
    PUT_GENERATOR_BACK,
    is_of_generator,
    is_of_own_code,
)
from memplan_engine.op_kinds.ordered import ONCE, draws, has_effect

Value = tuple[str, int]
"""A tensor of the original graph, and after how many writes to its storage it is read."""
MOST = 100
_SECOND = re.compile(r"_again\d*$")
"""What the name of an op that runs again ends with, behind that of the one that it is."""


def check_recompute(original: Graph, recomputed: Graph) -> list[str]:
    """What is wrong with `recomputed` in place of `original`; [] when nothing is.

    Each op of it is one of the original's, by its name, of the same kind, that reads the same values, by what
    made them and after as many writes, and shows the same storages again where the original does; or it keeps
    the state of the random generator or puts one back. Each runs at least once, and those that are there for
    an effect or write over what no op has made once: the first in the order of the original. Each that draws
    random numbers finds the generator as it does there, which is left as it is left there. Both return the
    same values.
    """
    if (original.inputs, original.constants) != (recomputed.inputs, recomputed.constants):
        return ["the inputs or weights differ"]
    ours, theirs = _Run(original), _Run(recomputed)
    wrong: list[str] = []
    asked_of: dict[str, tuple[object, ...]] = {}
    once, drawing, lasting = set[str](), list[str](), list[str]()
    for op in original.ops:
        asked_of[op.name] = _signature(op, ours.begin(op))
        if draws(op, not _made(op, ours)):
            drawing.append(op.name)
        if has_effect(op):
            lasting.append(op.name)
        into = {ours.tensors[name].storage for name in op.mutates} & ours.produced
        if op.kind == ONCE or is_of_own_code(op.kind) or has_effect(op) or ours.writes_of(op) - into:
            once.add(op.name)
        ours.end(op, op.outputs)
    by_name = {op.name: op for op in original.ops}
    generator = _Generator(drawing)
    count: Counter[str] = Counter()
    kept: list[str] = []
    for op in recomputed.ops:
        if is_of_generator(op.kind) and op.name not in by_name:
            wrong += generator.go_through(op, theirs)
            continue
        twin = by_name.get(op.name) or by_name.get(_SECOND.sub("", op.name))
        values = theirs.begin(op)
        if twin is None or asked_of[twin.name] != _signature(op, values):
            return [*wrong, f"{op.name}: no op of the original, or not with what that one reads"]
        wrong += _wrong_places(op, twin, ours, theirs)
        wrong += generator.draw(twin)
        count[twin.name] += 1
        kept.append(twin.name)
        theirs.end(op, twin.outputs)
    wrong += [f"{op.name}: does not run" for op in original.ops if not count[op.name]]
    wrong += [f"{name}: runs {count[name]} times, and may once" for name in once if count[name] > 1]
    if [name for name in kept if name in set(lasting)] != lasting:
        wrong.append(f"{lasting[0]} and others like it do not run in their order")
    if generator.drawn != len(drawing):
        wrong.append("the random generator is left in another state")
    asked = [ours.value(name) for name in original.outputs]
    given = [theirs.value(name) for name in recomputed.outputs]
    if asked != given:
        wrong.append("something else is returned")
    return wrong[:MOST]


class _Generator:
    """The random generator as a graph runs: so many of the ops that draw, in the order `drawing`, have moved
    it on. `states` has by tensor a state that is kept, as such a number."""

    def __init__(self, drawing: list[str]) -> None:
        self.place = {name: place for place, name in enumerate(drawing)}
        self.drawn = 0
        self.states: dict[str, int] = {}

    def draw(self, twin: Op) -> list[str]:
        """An op that is `twin` of the original runs."""
        place = self.place.get(twin.name)
        if place is None:
            return []
        wrong = [] if place == self.drawn else [f"{twin.name}: draws other random numbers than before"]
        self.drawn = place + 1
        return wrong

    def go_through(self, op: Op, run: _Run) -> list[str]:
        """`op` keeps a state, or puts one back."""
        before = self.drawn
        read, made = len(op.inputs), len(op.outputs)
        if (read, made) != (op.kind != KEEP_GENERATOR, op.kind != PUT_GENERATOR_BACK) or op.mutates:
            return [f"{op.name}: reads or makes something else than a state of the generator"]
        for name in op.inputs:
            if name not in self.states:
                return [f"{op.name}: reads {name}, which is no state of the generator"]
            self.drawn = self.states[name]
        for name in op.outputs:
            storage = run.tensors[name].storage
            if storage in run.begun or run.nbytes[storage] != GENERATOR_BYTES:
                return [f"{op.name}: {name} does not lie in a storage of its own for a state"]
            run.begun.add(storage)
            self.states[name] = before
        return []


class _Run:
    """A graph that is gone through: the `values` of its tensors, and how often each storage was written."""

    def __init__(self, graph: Graph) -> None:
        self.tensors: dict[str, Tensor] = {tensor.name: tensor for tensor in graph.tensors}
        self.nbytes = {storage.name: storage.nbytes for storage in graph.storages}
        self.produced = {storage.name for storage in graph.storages if storage.role in PRODUCED}
        self.values: dict[str, str] = {name: name for name in (*graph.inputs, *graph.constants)}
        self.begun: set[str] = {self.tensors[name].storage for name in self.values}
        self.writes: Counter[str] = Counter()

    def value(self, name: str) -> Value | None:
        known = self.values.get(name)
        return None if known is None else (known, self.writes[self.tensors[name].storage])

    def begin(self, op: Op) -> list[Value | None]:
        """The values that `op` reads, those that it writes over last."""
        return [self.value(name) for name in (*op.inputs, *op.mutates)]

    def writes_of(self, op: Op) -> set[str]:
        """The storages that `op` writes to which others have begun."""
        read = {self.tensors[name].storage for name in (*op.inputs, *op.mutates)}
        fresh = {self.tensors[name].storage for name in op.outputs} - read
        return {self.tensors[name].storage for name in op.mutates} | (fresh & self.begun)

    def end(self, op: Op, made: tuple[str, ...]) -> None:
        """`op` has run, and made these values."""
        for storage in self.writes_of(op):
            self.writes[storage] += 1
        for name, value in zip(op.outputs, made, strict=True):
            self.values[name] = value
            self.begun.add(self.tensors[name].storage)


def _signature(op: Op, values: list[Value | None]) -> tuple[object, ...]:
    return (op.kind, len(op.inputs), tuple(values), len(op.outputs), op.module, op.source)


def _made(op: Op, run: _Run) -> set[str]:
    """The storages of the results of `op` that it does not read."""
    read = {run.tensors[name].storage for name in (*op.inputs, *op.mutates)}
    return {run.tensors[name].storage for name in op.outputs} - read


def _wrong_places(op: Op, twin: Op, ours: _Run, theirs: _Run) -> list[str]:
    """Whether the outputs of `op` have the form of those of `twin`, and lie in storages as these do."""
    wrong = []
    for name, other in zip(op.outputs, twin.outputs, strict=True):
        new, old = theirs.tensors[name], ours.tensors[other]
        form = (new.shape, new.dtype, new.strides, new.offset)
        if form != (old.shape, old.dtype, old.strides, old.offset):
            wrong.append(f"{op.name}: {name} has another form than {other}")
        if theirs.nbytes[new.storage] != ours.nbytes[old.storage]:
            wrong.append(f"{op.name}: the storage of {name} has other bytes than that of {other}")
        shows = [theirs.tensors[each].storage == new.storage for each in (*op.inputs, *op.mutates)]
        showed = [ours.tensors[each].storage == old.storage for each in (*twin.inputs, *twin.mutates)]
        if shows != showed:
            wrong.append(f"{op.name}: {name} shows another storage than {other}")
        elif not any(shows) and new.storage in theirs.begun and old.storage != new.storage:
            wrong.append(f"{op.name}: {name} lies in a storage that something else is in")
    return wrong
