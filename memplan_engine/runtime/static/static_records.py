"""A flat graph as records over registers: what is called, on which registers, and what dies after it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from memplan_engine.errors import MemplanError
from memplan_engine.runtime.slab.operators import done
from memplan_engine.runtime.slab.out_calls import out_arguments
from memplan_engine.runtime.static.static_export import OWN
from memplan_engine.torch_capture.torch_fake import storage_of, tensors_of
from memplan_engine.torch_capture.torch_operators import arguments_of, gives_views
from memplan_engine.torch_capture.torch_run import attribute_of, brief, changes_layout, is_item, kind_of

memplan = torch.ops.memplan
Step = tuple[Callable[..., Any], Callable[[list[Any]], Sequence[Any]], dict[str, Any], int, tuple[int, ...]]
"""What a record is while it runs: what is called, what takes its arguments out of the registers, the constant
keyword arguments, the register of the result, and the registers that are emptied."""


Around = Callable[[int, Callable[[], Any], Any, Any], Any]
"""`around(index, call, args, kwargs)` runs `call()` for the record of that index and gives what it gave."""


@dataclass(frozen=True, slots=True)
class Record:
    """One node: `call(*registers of args, **constants)`, keyword arguments from registers by name in
    `keywords`; the result goes into register `result`, then those of `dies` are emptied. `out` says that it
    writes into memory it is given, which then is the register of its result where it has only one. `op` is
    the node's name in the memplan Graph."""

    op: str
    kind: str
    call: Callable[..., Any]
    args: tuple[int, ...]
    keywords: tuple[tuple[str, int], ...]
    result: int
    out: bool
    dies: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """A graph to be run over and over. `registers` is one list with an index for every value: weights, other
    constants, views of the buffer and of weights stand there for good, the rest is None between runs.
    `inputs` and `outputs` are the registers of the flat inputs (without weights) and outputs."""

    name: str
    registers: tuple[Any, ...]
    records: tuple[Record, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[Step, ...]

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The flat outputs for these flat inputs.

        Raises
        ------
        MemplanError: an operator that fails, by name.
        """
        registers, take = self._loaded(inputs), None
        try:
            for call, take, keywords, result, dies in self.steps:
                registers[result] = call(*take(registers), **keywords)
                for dead in dies:
                    registers[dead] = None
        except Exception as error:
            raise self._failed(take, error) from error
        return [registers[index] for index in self.outputs]

    def watched(self, inputs: Sequence[Any], around: Around) -> list[Any]:
        """As `run`, with every record run by `around`."""
        registers, take = self._loaded(inputs), None
        try:
            for index, (call, take, keywords, result, dies) in enumerate(self.steps):
                args = take(registers)
                registers[result] = around(index, partial(call, *args, **keywords), args, keywords)
                args = ()
                for dead in dies:
                    registers[dead] = None
        except MemplanError:
            raise
        except Exception as error:
            raise self._failed(take, error) from error
        return [registers[index] for index in self.outputs]

    def layouts(self) -> list[tuple[int, torch.Size, tuple[int, ...]]]:
        """The shape and strides of every standing register that is given to an `out` variant by name."""
        written = {index for record in self.records if record.out for _, index in record.keywords}
        values = [(index, self.registers[index]) for index in sorted(written)]
        return [(i, value.shape, value.stride()) for i, value in values if isinstance(value, torch.Tensor)]

    def _loaded(self, inputs: Sequence[Any]) -> list[Any]:
        registers = list(self.registers)
        for index, value in zip(self.inputs, inputs, strict=True):
            registers[index] = value
        return registers

    def _failed(self, take: Any, error: Exception) -> MemplanError:
        pairs = zip(self.steps, self.records, strict=True)
        named = (f"op {record.op!r} ({record.kind})" for step, record in pairs if step[1] is take)
        where = next(named, "run")
        return MemplanError(f"{self.name}: {where} failed: {brief(error)}")


def make_tape(
    module: GraphModule, state: Sequence[Any], name: str, slab: torch.Tensor | None = None, op_key: str = ""
) -> Tape:
    """The records of `module`, whose first placeholders are `state`. Views of weights, and with a `slab` all
    that the graph allocates in it and views of that, are made now, once for all runs."""
    return _Recorder(module, state, name, slab, op_key).tape()


class _Recorder:
    """Nodes → registers. `constant` holds the registers whose values stand for good."""

    def __init__(
        self, module: GraphModule, state: Sequence[Any], name: str, slab: torch.Tensor | None, op_key: str
    ) -> None:
        self.module, self.state, self.name, self.slab, self.op_key = module, state, name, slab, op_key
        self.registers: list[Any] = []
        self.constant: set[int] = set()
        self.of: dict[Node, int] = {}
        self.items: dict[tuple[Node, Any], int] = {}
        self.records: list[Record] = []
        self.plain: dict[Any, int] = {}
        # An op that changes shape or strides of a tensor in place would change those that are kept.
        self.hoists = not any(changes_layout(node) for node in module.graph.nodes)

    def tape(self) -> Tape:
        """All of it."""
        inputs: list[int] = []
        outputs: tuple[int, ...] = ()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                position = len(self.of)
                if position < len(self.state):
                    self.of[node] = self._constant(self.state[position])
                else:
                    self.of[node] = self._register()
                    inputs.append(self.of[node])
            elif node.op == "get_attr":
                self.of[node] = self._constant(attribute_of(self.module, node))
            elif node.op == "output":
                returned = node.args[0]
                flat = returned if isinstance(returned, (tuple, list)) else [returned]
                outputs = tuple(self._output(value, node) for value in flat)
            else:
                self._call(node)
        records = _with_ends(self.records, self.constant, {*outputs})
        return self._compact(records, inputs, outputs)

    def _compact(self, records: Sequence[Record], inputs: Sequence[int], outputs: Sequence[int]) -> Tape:
        """The tape without the registers that nobody uses: those of what was made once and for all."""
        used = {*inputs, *outputs, *(index for record in records for index in _touched(record))}
        new = {old: position for position, old in enumerate(sorted(used))}
        moved = [
            replace(
                record,
                args=tuple(new[index] for index in record.args),
                keywords=tuple((key, new[index]) for key, index in record.keywords),
                result=new[record.result],
                dies=tuple(new[index] for index in record.dies),
            )
            for record in records
        ]
        self.registers = [self.registers[index] for index in sorted(used)]
        self.constant = {new[index] for index in self.constant & used}
        steps = tuple(self._step(record) for record in moved)
        new_inputs, new_outputs = (tuple(new[index] for index in indices) for indices in (inputs, outputs))
        return Tape(self.name, tuple(self.registers), tuple(moved), new_inputs, new_outputs, steps)

    def _output(self, value: Any, node: Node) -> int:
        """The register of an output; of a tensor that stands for good another tensor with its storage."""
        index = self._argument(value, node)
        if index not in self.constant or not isinstance(self.registers[index], torch.Tensor):
            return index
        result = self._register()
        self._record(node, "construct.alias", torch.ops.aten.detach.default, [index], {}, result)
        return result

    def _register(self) -> int:
        self.registers.append(None)
        return len(self.registers) - 1

    def _constant(self, value: Any) -> int:
        index = self._register()
        self.registers[index] = value
        self.constant.add(index)
        return index

    def _call(self, node: Node) -> None:
        target: Any = node.target
        if target is memplan.allocate_slab.default:
            self.of[node] = self._constant(self.slab)
            return
        if target is done or target is memplan.release_slab.default:
            self.of[node] = self._literal(0)
            return
        if is_item(node) and (node.args[0], node.args[1]) in self.items:
            self.of[node] = self.items[node.args[0], node.args[1]]  # type: ignore[index]
            return
        args = [self._argument(arg, node) for arg in node.args]
        keywords = {key: self._argument(arg, node) for key, arg in node.kwargs.items()}
        if self.hoists and self._stands(node, args, keywords):
            return
        result = self._result(node, args, keywords)
        self.of[node] = result
        self._record(node, kind_of(node), target, args, keywords, result)

    def _record(
        self, node: Node, kind: str, call: Any, args: list[int], keywords: dict[str, int], result: int
    ) -> None:
        op = str(node.meta.get(self.op_key, node.name)) if self.op_key else node.name
        out = isinstance(call, OpOverload) and bool(out_arguments(call))
        # Calling the overload's own function saves one of Python's.
        call = getattr(call, "_op", call) if isinstance(call, OpOverload) else call
        self.records.append(Record(op, kind, call, tuple(args), tuple(keywords.items()), result, out))

    def _argument(self, value: Any, node: Node) -> int:
        """The register of an argument; lists, tuples, slices and dicts of nodes are made by a record."""
        if isinstance(value, Node):
            return self.of[value]
        parts, make = _parts(value)
        if not any(isinstance(leaf, Node) for leaf in _nodes_in(value)):
            return self._literal(value)
        registers = [self._argument(part, node) for part in parts]
        if self.constant.issuperset(registers):
            return self._constant(make(*(self.registers[index] for index in registers)))
        result = self._register()
        self._record(node, f"construct.{type(value).__name__}", make, registers, {}, result)
        return result

    def _literal(self, value: Any) -> int:
        """One register for the same plain value, however often it stands there."""
        key = (type(value), repr(value))
        if key not in self.plain:
            self.plain[key] = self._constant(_plain(value))
        return self.plain[key]

    def _stands(self, node: Node, args: list[int], keywords: dict[str, int]) -> bool:
        """Make the result of `node` now, where it is a view of something that stands already."""
        registers = [*args, *keywords.values()]
        if not isinstance(node.target, OpOverload) or not self.constant.issuperset(registers):
            return False
        if node.target.namespace not in (*OWN, "memplan"):
            return False
        if node.target._schema.is_mutable or not gives_views(node.target):
            return False
        operands = [self.registers[index] for index in args]
        named = {key: self.registers[index] for key, index in keywords.items()}
        homes = set(map(storage_of, tensors_of((operands, named))))
        if not homes:
            return False
        with torch.no_grad():
            value = node.target(*operands, **named)
        storages = set(map(storage_of, tensors_of(value)))
        if not storages or not storages <= homes:
            return False
        self.of[node] = self._constant(value)
        if isinstance(value, (tuple, list)):
            for position, item in enumerate(value):
                self.items[node, position] = self._constant(item)
        return True

    def _result(self, node: Node, args: list[int], keywords: dict[str, int]) -> int:
        """The register for the result: that of the argument which the operator writes and returns, where this
        is a tensor that stands for good, or a new one."""
        target = node.target
        if self.hoists and isinstance(target, OpOverload):
            arguments, returns = target._schema.arguments, target._schema.returns
            registers: dict[str, int] = arguments_of(target, args, keywords)
            written = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
            same = [registers.get(a.name, -1) for a in written]
            if written and len(returns) == len(written) and all(r.alias_info is not None for r in returns):
                if len(returns) == 1 and same[0] in self.constant:
                    return same[0]
                for position, index in enumerate(same):
                    if index in self.constant:
                        self.items[node, position] = index
        return self._register()

    def _step(self, record: Record) -> Step:
        indices, call = record.args, record.call
        standing = {key: self.registers[i] for key, i in record.keywords if i in self.constant}
        moving = [(key, index) for key, index in record.keywords if index not in self.constant]
        if moving:
            call = _with_keywords(call, len(indices), [key for key, _ in moving])
            indices = (*indices, *(index for _, index in moving))
        return call, _getter(indices), standing, record.result, record.dies


def _with_ends(records: Sequence[Record], constant: set[int], kept: set[int]) -> tuple[Record, ...]:
    """The records with the registers that die after each, which nobody reads later on or returns."""
    seen, ended = kept | constant, []
    for record in reversed(records):
        touched = _touched(record) - seen
        seen |= touched
        ended.append(replace(record, dies=tuple(sorted(touched))))
    return tuple(reversed(ended))


def _touched(record: Record) -> set[int]:
    return {*record.args, *(index for _, index in record.keywords), record.result}


def _getter(indices: tuple[int, ...]) -> Callable[[list[Any]], Sequence[Any]]:
    """What takes the arguments out of the registers, as a sequence."""
    if len(indices) > 1:
        return operator.itemgetter(*indices)
    first = indices[0] if indices else 0
    return operator.itemgetter(slice(first, first + len(indices)))


def _with_keywords(call: Callable[..., Any], count: int, names: Sequence[str]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(*args[:count], **dict(zip(names, args[count:], strict=True)), **kwargs)

    return wrapper


def _parts(value: Any) -> tuple[list[Any], Callable[..., Any]]:
    """What a nested argument is made of, and what makes it of that."""
    if isinstance(value, slice):
        return [value.start, value.stop, value.step], slice
    if isinstance(value, dict):
        keys = list(value)
        return list(value.values()), lambda *values: dict(zip(keys, values, strict=True))
    if isinstance(value, tuple):
        return list(value), lambda *values: values
    return (list(value) if isinstance(value, list) else []), lambda *values: list(values)


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    for part in _parts(value)[0]:
        yield from _nodes_in(part)


def _plain(value: Any) -> Any:
    """A literal as Python's own lists, of fx's immutable ones."""
    if isinstance(value, (list, tuple, dict)):
        parts, make = _parts(value)
        return make(*map(_plain, parts))
    return value
