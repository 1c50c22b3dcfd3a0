"""A dump of XLA → Graph, and XLA's own offsets as a plan of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd

import numpy as np

from memplan_engine.formats.xla_dump.hlo_module import Dump, Value
from memplan_engine.formats.xla_dump.shared_bytes import Place, check_kept, places_of
from memplan_engine.formats.xla_dump.value_flow import Flow, Step
from memplan_engine.graph import Graph, Op, Storage, Tensor, check_graph, storage_role
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt, as_problem

MOST_ALIGNMENT = 128
"""Bytes: what XLA aligns to on GPUs, the most that a dump is taken to ask for. Nothing in it says so, and all
offsets of a small module may be multiples of much more by chance."""
_WRAPPER = re.compile(r"^(?:p?jit\([^()]*\)/?)+")


@dataclass(frozen=True, slots=True)
class _Home:
    """The storage of a value, and the byte in it at which the value begins."""

    storage: str
    offset: int


class XlaGraph:
    """The graph of a dump, with the places that XLA has given to its temporaries.

    What XLA allocates for itself is planned. The buffers of arguments and results are the caller's: what XLA
    lets live in them, results and temporaries, is part of an input. `source` names the dump in errors.

    Raises
    ------
    InputError: as `Flow`, `check_kept`, `places_of` and `check_graph` do.
    """

    def __init__(self, dump: Dump, source: str) -> None:
        self._dump, self._flow = dump, Flow(dump, source)
        self._allocation = {value: allocation for allocation, value in dump.values()}
        self._alignment = _alignment(dump)
        self._base = self._bases()
        spans = self._spans()
        check_kept(spans, self._flow.same, source)
        self._places = places_of(spans, self._flow.same, source)
        self._homes = {
            value: _Home(_name(place), self._at(value) - place.low)
            for place in self._places
            for value in place.values
        }
        self.graph = check_graph(self._graph(), source)

    def plan(self) -> Plan:
        """XLA's own offsets as a plan; valid by the way that places are joined."""
        at = {_name(place): place.low for place in self._places}
        problem = as_problem(self.graph)
        return adopt(problem, np.array([at[name] for name in problem.names], np.int64))

    def _bases(self) -> dict[int, int]:
        """By number where each temporary allocation begins: one behind the other, in one arena."""
        bases, end = {}, 0
        for allocation in self._dump.allocations:
            if allocation.is_temporary:
                bases[allocation.number] = -(-end // self._alignment) * self._alignment
                end = bases[allocation.number] + allocation.size
        return bases

    def _at(self, value: Value) -> int:
        return self._base[self._allocation[value].number] + value.offset

    def _spans(self) -> dict[Value, tuple[int, int, int]]:
        """Offset, begin and end of all values that are temporaries and made."""
        spans = {}
        last = {value: number for number, step in enumerate(self._flow.steps) for value in step.reads}
        last |= dict.fromkeys(self._flow.returned, len(self._flow.steps) - 1)
        for number, step in enumerate(self._flow.steps):
            for value in step.makes:
                if self._allocation[value].is_temporary:
                    spans[value] = self._at(value), number, max(number, last.get(value, 0)) + 1
        return spans

    def _graph(self) -> Graph:
        flow = self._flow
        given = {self._allocation[value].number: value for value in reversed(flow.given)}
        values = dict.fromkeys((*flow.given, *(value for step in flow.steps for value in step.makes)))
        tensors, sizes = [], {_name(place): place.high - place.low for place in self._places}
        inputs: list[str] = []
        constants: list[str] = []
        for value in values:
            allocation = self._allocation[value]
            if value not in self._homes:
                first = given.get(allocation.number)
                kind = "output allocation" if allocation.is_live_out else "allocation"
                storage = first.name if first else f"{kind} {allocation.number}"
                self._homes[value] = _Home(storage, value.offset)
                if first is None and storage not in sizes:
                    # The caller's, and nothing that came in: it is there before the first op writes to it.
                    tensors.append(Tensor(storage, (allocation.size,), "uint8", allocation.size, storage))
                    inputs.append(storage)
                sizes[storage] = allocation.size
            home = self._homes[value]
            tensors.append(
                Tensor(value.name, value.shape, value.dtype, value.size, home.storage, offset=home.offset)
            )
        for value in flow.given:
            (constants if self._allocation[value].is_constant else inputs).append(value.name)
        outputs = [value.name for value in flow.returned]
        storage_of = {tensor.name: tensor.storage for tensor in tensors}
        lists = {
            kind: {storage_of[name] for name in names}
            for kind, names in (("inputs", inputs), ("constants", constants), ("outputs", outputs))
        }
        storages = tuple(
            Storage(name, nbytes, storage_role(name, **lists), self._alignment)
            for name, nbytes in sizes.items()
        )
        ops = tuple(self._op(step) for step in flow.steps)
        return Graph(
            self._dump.module.name,
            storages,
            tuple(tensors),
            ops,
            tuple(inputs),
            tuple(outputs),
            tuple(constants),
        )

    def _op(self, step: Step) -> Op:
        instruction = step.instruction
        made = [self._extent(value) for value in step.makes] if not step.joins else []
        mutates = [
            value.name
            for value in step.reads
            if made and any(_overlap(self._extent(value), extent) for extent in made)
        ]
        return Op(
            instruction.name,
            instruction.opcode,
            tuple(value.name for value in step.reads),
            tuple(value.name for value in step.makes),
            tuple(mutates),
            scope_of(instruction.scope),
            instruction.source,
        )

    def _extent(self, value: Value) -> tuple[str, int, int]:
        home = self._homes[value]
        return home.storage, home.offset, home.offset + value.size


def scope_of(path: str) -> str:
    """The names that the program has given to what an op belongs to, with dots between: of
    "jit(f)/encoder/mlp/dot_general" "encoder.mlp"."""
    return ".".join(_WRAPPER.sub("", path).split("/")[:-1])


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _name(place: Place) -> str:
    return place.values[0].name


def _alignment(dump: Dump) -> int:
    """The largest power of two, up to MOST_ALIGNMENT, that divides all offsets of temporaries."""
    every = gcd(*(value.offset for each, value in dump.values() if each.is_temporary))
    return min(every & -every, MOST_ALIGNMENT) or DEFAULT_ALIGNMENT
