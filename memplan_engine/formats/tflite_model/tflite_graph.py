"""A TensorFlow Lite model → Graph. Subgraphs that an op calls stand behind it, with the lifetimes that
TensorFlow Lite for Microcontrollers plans with (micro_allocation_info.cc)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.formats.flat_tables import FlatFile, Table
from memplan_engine.formats.read_limits import read_bytes
from memplan_engine.formats.tflite_model.tflite_schema import (
    BUFFER_DATA,
    BUFFER_OFFSET,
    CALLS,
    CODE_BUILTIN,
    CODE_CUSTOM,
    CODE_OLD,
    CUSTOM,
    GRAPH_INPUTS,
    GRAPH_OPERATORS,
    GRAPH_OUTPUTS,
    GRAPH_TENSORS,
    IDENTIFIER,
    MODEL_BUFFERS,
    MODEL_CODES,
    MODEL_SUBGRAPHS,
    OPERATOR_CODE,
    OPERATOR_INPUTS,
    OPERATOR_OPTIONS,
    OPERATOR_OUTPUTS,
    OPERATORS,
    TENSOR_BUFFER,
    TENSOR_IS_VARIABLE,
    TENSOR_NAME,
    TENSOR_SHAPE,
    TENSOR_TYPE,
    TYPES,
)
from memplan_engine.graph import MAX_BYTES, Graph, Op, Storage, Tensor, check_graph, storage_role

MOST_BYTES = 2**31
"""FlatBuffers end there."""
MOST_DEEP = 50
"""Subgraphs within each other."""


@dataclass(slots=True)
class _Step:
    """An op in the making."""

    name: str
    kind: str
    inputs: list[str]
    outputs: list[str]


@dataclass(slots=True)
class TfliteModel:
    """The tables of a model. `labels[s][t]` is what tensor t of subgraph s is called in the graph."""

    file: FlatFile
    subgraphs: list[Table] = field(init=False)
    tensors: list[list[Table]] = field(init=False)
    labels: list[list[str]] = field(init=False)
    _codes: list[Table] = field(init=False)
    _weights: list[bool] = field(init=False)
    _steps: list[_Step] = field(default_factory=list)
    _entered: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        root = self.file.root()
        self.subgraphs, self._codes = root.tables(MODEL_SUBGRAPHS), root.tables(MODEL_CODES)
        if not self.subgraphs:
            raise InputError(self.file.name, "", "no subgraph", "a model with one at least")
        self._weights = [
            bool(buffer.vector(BUFFER_DATA, 1)[1]) or buffer.number(BUFFER_OFFSET, "Q") > 1
            for buffer in root.tables(MODEL_BUFFERS)
        ]
        self.tensors = [subgraph.tables(GRAPH_TENSORS) for subgraph in self.subgraphs]
        said = [[tensor.text(TENSOR_NAME) for tensor in tensors] for tensors in self.tensors]
        counts = Counter(name for names in said for name in names)
        self.labels = [
            [
                name if name and counts[name] == 1 else f"{name or 'tensor'}#{s}.{t}"
                for t, name in enumerate(names)
            ]
            for s, names in enumerate(said)
        ]

    def graph(self, name: str) -> Graph:
        """The graph of the first subgraph, with those that it calls.

        Raises
        ------
        InputError: tensors without a fixed size, numbers that name nothing, a subgraph that is called twice,
        what `check_graph` refuses.
        """
        self._steps, self._entered = [], set()
        self._enter(0, 0)
        self._make_scratch()
        inputs = self._names(0, self.subgraphs[0], GRAPH_INPUTS)
        outputs = self._names(0, self.subgraphs[0], GRAPH_OUTPUTS)
        made = {out for step in self._steps for out in step.outputs}
        read = {name for step in self._steps for name in step.inputs} | set(outputs)
        tensors, constants = [], []
        for s in sorted(self._entered):
            for t, label in enumerate(self.labels[s]):
                is_constant = label not in made and label not in inputs and self._is_constant(s, t)
                if label in made or label in inputs or (is_constant and label in read):
                    tensors.append(self._tensor(s, t, label))
                    constants += [label] * is_constant
        lists = {"inputs": set(inputs), "constants": set(constants), "outputs": set(outputs)}
        storages = (Storage(each.name, each.nbytes, storage_role(each.name, **lists)) for each in tensors)
        ops = tuple(Op(each.name, each.kind, tuple(each.inputs), tuple(each.outputs)) for each in self._steps)
        made_graph = Graph(
            name, tuple(storages), tuple(tensors), ops, tuple(dict.fromkeys(inputs)),
            tuple(dict.fromkeys(outputs)), tuple(constants),
        )  # fmt: skip
        return check_graph(made_graph, self.file.name)

    def _enter(self, s: int, depth: int) -> None:
        """Put the ops of subgraph s behind those that are there."""
        if s in self._entered or depth > MOST_DEEP:
            found = f"subgraph {s}, called twice" if s in self._entered else f"{depth} within each other"
            raise InputError(
                self.file.name, "subgraphs", found, f"each called once, at most {MOST_DEEP} deep"
            )
        self._entered.add(s)
        for number, operator in enumerate(self.subgraphs[s].tables(GRAPH_OPERATORS)):
            code, kind = self._kind(operator)
            inputs, outputs = (self._names(s, operator, each) for each in (OPERATOR_INPUTS, OPERATOR_OUTPUTS))
            name = f"{kind.lower()}_{number}" if s == 0 else f"{kind.lower()}_{s}_{number}"
            self._steps.append(_Step(name, kind, inputs, outputs))
            for called in self._called(operator, code):
                entered = self._names(called, self.subgraphs[called], GRAPH_INPUTS)
                self._steps.append(_Step(f"{name}.subgraph_{called}", "SUBGRAPH", [], entered))
                self._enter(called, depth + 1)
                self._hold(self._names(called, self.subgraphs[called], GRAPH_OUTPUTS))
            # What an op reads and makes is there until what it calls has ended.
            self._hold([*inputs, *outputs])

    def _make_scratch(self) -> None:
        """Have what is read, and made by nobody, be made by the first op that reads it: scratch of its own,
        as compilers for accelerators write it."""
        there = set(self._names(0, self.subgraphs[0], GRAPH_INPUTS))
        there |= {
            label for s in self._entered for t, label in enumerate(self.labels[s]) if self._is_constant(s, t)
        }
        made = {name for step in self._steps for name in step.outputs}
        for step in self._steps:
            scratch = [name for name in step.inputs if name not in there and name not in made]
            step.outputs += scratch
            step.inputs = [name for name in step.inputs if name not in scratch]
            there.update(scratch)

    def _hold(self, names: Iterable[str]) -> None:
        """Have the last op read `names`, all but those that it makes."""
        last = self._steps[-1]
        known = {*last.inputs, *last.outputs}
        last.inputs += [name for name in dict.fromkeys(names) if name not in known]

    def _called(self, operator: Table, code: int) -> list[int]:
        options = operator.table(OPERATOR_OPTIONS)
        count = CALLS.get(code, 0)
        called = [options.number(number, "i") if options else 0 for number in range(count)]
        for each in called:
            if not 0 < each < len(self.subgraphs):
                raise InputError(
                    self.file.name, "subgraphs", f"a call of {each}", f"1 to {len(self.subgraphs) - 1}"
                )
        return called

    def _kind(self, operator: Table) -> tuple[int, str]:
        number = operator.number(OPERATOR_CODE, "I")
        if number >= len(self._codes):
            expected = f"one of {len(self._codes)} operator codes"
            raise InputError(self.file.name, "operators", f"the code {number}", expected)
        entry = self._codes[number]
        code = max(entry.number(CODE_BUILTIN, "i"), entry.number(CODE_OLD, "b"))
        if code == CUSTOM:
            return code, entry.text(CODE_CUSTOM) or "CUSTOM"
        return code, OPERATORS[code] if 0 <= code < len(OPERATORS) else f"OPERATOR_{code}"

    def _names(self, s: int, table: Table, column: int) -> list[str]:
        """The tensors that a list of `table` names; -1 is one that is left out."""
        names = []
        for t in table.integers(column).tolist():
            if t >= len(self.labels[s]) or t < -1:
                expected = f"one of {len(self.labels[s])} tensors"
                raise InputError(self.file.name, f"subgraph {s}", f"the tensor {t}", expected)
            if t >= 0:
                names.append(self.labels[s][t])
        return list(dict.fromkeys(names))

    def _is_constant(self, s: int, t: int) -> bool:
        """Whether it has content of its own, or keeps what it holds from one run to the next."""
        tensor = self.tensors[s][t]
        buffer = tensor.number(TENSOR_BUFFER, "I")
        if buffer >= len(self._weights):
            expected = f"one of {len(self._weights)} buffers"
            raise InputError(self.file.name, f"tensor {self.labels[s][t]!r}", f"buffer {buffer}", expected)
        return self._weights[buffer] or bool(tensor.number(TENSOR_IS_VARIABLE, "B"))

    def _tensor(self, s: int, t: int, label: str) -> Tensor:
        table, place = self.tensors[s][t], f"tensor {label!r}"
        kind = table.number(TENSOR_TYPE, "b")
        if kind not in TYPES:
            raise InputError(
                self.file.name, place, f"the type {kind}", "a type of fixed size: no strings, no variants"
            )
        shape = tuple(table.integers(TENSOR_SHAPE).tolist())
        dtype, bits = TYPES[kind]
        nbytes = (prod(shape) * bits + 7) // 8
        if min(shape, default=0) < 0 or nbytes > MAX_BYTES:
            raise InputError(
                self.file.name, place, f"the shape {list(shape)}", "sizes of 0 or more, below 2^63 bytes"
            )
        return Tensor(label, shape, dtype, nbytes, label)


def read_model(path: Path) -> TfliteModel:
    """The tables of the model in a file; raises InputError for what is none."""
    data = read_bytes(path, MOST_BYTES)
    if data[4:8] != IDENTIFIER:
        raise InputError(path.name, "", "bytes that are no TensorFlow Lite model", "a .tflite file")
    return TfliteModel(FlatFile(data, path.name))
