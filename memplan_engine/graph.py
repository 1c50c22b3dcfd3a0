"""The graph of a model: tensors, the storages they live in, and the ops that make and read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Annotated, Any, NamedTuple, TypeVar

from memplan_engine.errors import InputError
from memplan_engine.scope import Basis, Scope

MAX_BYTES = 2**63 - 1
MOST_DIMENSIONS = 64
"""Of a tensor in a file: torch's and ONNX Runtime's operators take no more."""
MOST_NESTED = 100
"""Calls around an op: searches of orders go into them level by level."""
Path = tuple[tuple[str, str], ...]
"""The ops that an op is inside, from the outside in, each with the name of its branch."""

Named = TypeVar("Named", "Storage", "Tensor", "Op", "Symbol")


class Role(StrEnum):
    """Where a storage comes from, or what it is kept for."""

    INPUT = "input"
    CONSTANT = "constant"
    ACTIVATION = "activation"
    OUTPUT = "output"


PRODUCED = frozenset({Role.ACTIVATION, Role.OUTPUT})
"""The roles of storages that ops make."""


class Phase(StrEnum):
    """The part of a training step that an op belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch of one op, bytes: `shared` may be reused by other ops, so the maximum over all ops counts;
    `unique` is kept for this op alone, so the sum counts. Where the graph has symbols, `shared` is at their
    hints, and `formula` is it as text in the symbols: "" for a plain number, None where only the number at
    the hints is known."""

    shared: int = 0
    unique: int = 0
    formula: str | None = ""


NO_WORKSPACE = Workspace()


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that is not known before the run: any whole number from `low` to `high` (None: no limit known).
    `hint` is the value at which the plain numbers of the graph were taken; None for a size that depends on
    the data. `called` is its name in the file, where no formula can have that one ("batch size"). `given`:
    the hint is a value that was asked for."""

    name: str
    low: int = 1
    high: int | None = None
    hint: int | None = None
    called: str = field(default="", repr=False)
    given: bool = field(default=False, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.called!r})" if self.called else self.name


@dataclass(frozen=True, slots=True)
class Storage:
    """What is allocated once. Views, getitems and in-place results are tensors of one storage.

    `nbytes` is the whole allocation in bytes, whatever part of it the tensors show; where the graph has
    symbols, at their hints, and `formula` is the size as text in the symbols ("4*batch*seq"; "" for a plain
    number). `role` is INPUT or CONSTANT when the storage belongs to the caller or to the weights, even if the
    graph returns it; OUTPUT when the graph made it and returns it; else ACTIVATION. `alignment` 0 means the
    plan's own. `held_by` is the op up to whose end the storage is held, as by a Python name in an eager run;
    "" for its last use.
    """

    name: str
    nbytes: int
    role: Role
    alignment: int = 0
    formula: str = ""
    held_by: str = ""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value of the graph. `nbytes` is elements × item size, which for an expanded view is more than
    its storage holds.

    `strides` are in elements, None when contiguous (row-major); `offset` is in bytes from the storage's
    start. `formulas` are the dimensions as text in the graph's symbols, () when all are plain numbers.
    `layout` are the strides and, last, the offset as such text; () when they are plain numbers or follow from
    the shape: strides that fill memory without holes, at offset 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    storage: str
    strides: tuple[int, ...] | None = None
    offset: int = 0
    formulas: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's code an op comes from: `file`, `line` (1-based), and the text of that line."""

    file: str
    line: int
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def path_text(path: Path) -> str:
    """Return "while_loop · body › cond · true"."""
    return " › ".join(branch_name(path[: depth + 1]) for depth in range(len(path)))


def branch_name(path: Path) -> str:
    """Return the innermost branch of `path` as "cond · true". Of the name of an op that is inside another,
    what that one and its branch are called is left out."""
    call, branch = path[-1]
    outer = f"{'.'.join(path[-2])}." if len(path) > 1 else ""
    return f"{call.removeprefix(outer)} · {branch}"


class OpProperty(NamedTuple):
    """How people are told of a field of `Op`: tables, facts for machines and details are made from it."""

    label: str
    text: Callable[[Any], str] = str
    """Its value in words; the default says nothing."""
    name: str = ""
    default: Any = None

    def of(self, maker: object) -> Any:
        """The value of `maker`, as machines read it; the default where it has no such field."""
        return getattr(maker, self.name, self.default)

    def words(self, value: Any) -> str:
        """The value as people read it."""
        return "" if value == self.default else self.text(value)


@dataclass(frozen=True, slots=True)
class Op:
    """One operation. `inputs`, `outputs` and `mutates` are tensor names; `mutates` are inputs written in
    place. `module` is the dotted `nn.Module` path, "" when there is none. `out_variant` says whether the op
    can write into memory that it is given; None when that is not known. `within` says of an op in a sub-graph
    which ops call it (see `control_flow`); () for all others. People are told of what is annotated with an
    `OpProperty`."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    mutates: tuple[str, ...] = ()
    module: Annotated[str, OpProperty("module")] = ""
    source: Source | None = None
    workspace: Workspace = NO_WORKSPACE
    phase: Phase | None = None
    out_variant: bool | None = None
    within: Annotated[Path, OpProperty("inside", path_text)] = ()

    @property
    def is_of_torch(self) -> bool:
        """True if torch runs the op by itself, inside another one: no line of the user's makes it."""
        no_line = self.source is None and self.kind.startswith("aten.")
        return bool(self.within) and (no_line or self.kind.startswith("loop."))


@dataclass(frozen=True, slots=True)
class Graph:
    """A model's graph with its ops in a valid order. `inputs`, `outputs` and `constants` are tensor names;
    every other tensor is made by exactly one op. A graph with `symbols` is a graph at their hints that also
    carries formulas. `scope` says what the storages and the ops' workspaces together are all of: GRAPH where
    nobody knows the temporaries inside the ops; `notes`, `assumed`, `doubts` and `compiled` are those of its
    `basis`. Check one with `check_graph`."""

    name: str
    storages: tuple[Storage, ...]
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    scope: Scope = Scope.GRAPH
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    compiled: bool = False

    @property
    def basis(self) -> Basis:
        """What its figures rest on."""
        return Basis(self.notes, self.assumed, self.doubts, self.compiled)


def storage_bytes(graph: Graph, role: Role) -> int:
    """Bytes of all storages of one role."""
    return sum(storage.nbytes for storage in graph.storages if storage.role is role)


def unknown_sizes(graph: Graph) -> dict[str, str]:
    """The storages whose size depends on the data, by name, each with the first such symbol in its formula:
    symbols without a hint. They count as 0 bytes until their symbols have values."""
    unknown = {symbol.name for symbol in graph.symbols if symbol.hint is None}
    symbol_of: dict[str, str] = {}
    for storage in graph.storages if unknown else ():
        symbol = next((name for name in re.findall(r"[^\W\d]\w*", storage.formula) if name in unknown), None)
        if symbol is not None:
            symbol_of[storage.name] = symbol
    return symbol_of


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor of this shape and these strides (elements) is row-major without holes. Strides of
    dimensions of size 1 say nothing, and nor do those of a tensor without elements."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != expected:
            return 0 in shape
        expected *= size
    return True


def span(tensor: Tensor) -> tuple[int, int]:
    """The bytes of its storage that `tensor` reaches over, `[low, high)`: from its first element to behind
    its last one; (offset, offset) without elements."""
    elements = prod(tensor.shape)
    length = tensor.nbytes
    if tensor.strides is not None and elements:
        steps = zip(tensor.shape, tensor.strides, strict=True)
        length = length // elements * (1 + sum((size - 1) * stride for size, stride in steps))
    return tensor.offset, tensor.offset + length


def storage_role(name: str, *, inputs: set[str], constants: set[str], outputs: set[str]) -> Role:
    """The role of the storage `name`, given the names of the storages behind each list of a graph."""
    if name in constants:
        return Role.CONSTANT
    if name in inputs:
        return Role.INPUT
    return Role.OUTPUT if name in outputs else Role.ACTIVATION


def check_graph(graph: Graph, source: str = "graph") -> Graph:
    """Return `graph` if it is sound; raise InputError naming the op or tensor if it is not.

    Sound: names are unique, every tensor has a storage of 0 … 2^63−1 bytes whose role fits the graph's
    lists, every tensor is made once and before it is read, and the graph's outputs exist.
    """
    storages = _by_name(graph.storages, "storage", source)
    tensors = _by_name(graph.tensors, "tensor", source)
    ops = _by_name(graph.ops, "op", source)
    _by_name(graph.symbols, "symbol", source)
    for storage in graph.storages:
        place = f"storage {storage.name!r}"
        _check_bytes(storage.nbytes, place, source)
        if storage.held_by and storage.held_by not in ops:
            raise InputError(source, place, f"held by {storage.held_by!r}", "an op of the graph, or nothing")
    for tensor in graph.tensors:
        _check_bytes(tensor.nbytes, f"tensor {tensor.name!r}", source)
        _check_layout(tensor, source)
        if tensor.storage not in storages:
            raise InputError(
                source, f"tensor {tensor.name!r}", f"storage {tensor.storage!r}", "a storage of the graph"
            )
    for kind, names in (("inputs", graph.inputs), ("constants", graph.constants), ("outputs", graph.outputs)):
        for name in names:
            if name not in tensors:
                raise InputError(source, kind, f"tensor {name!r}", "a tensor of the graph")
    _check_order(graph, tensors, source)
    _check_within(graph, source)
    _check_roles(graph, tensors, source)
    _check_symbols(graph, source)
    _check_workspaces(graph, source)
    if sum(storage.nbytes for storage in graph.storages) > MAX_BYTES:
        raise InputError(source, "storages", "sizes whose sum passes 2^63-1", "a smaller total")
    return graph


def _by_name(items: Iterable[Named], noun: str, source: str) -> dict[str, Named]:
    by_name: dict[str, Named] = {}
    for item in items:
        if item.name in by_name:
            raise InputError(source, f"{noun} {item.name!r}", "the name twice", "unique names")
        by_name[item.name] = item
    return by_name


def _check_bytes(nbytes: int, place: str, source: str) -> None:
    if not 0 <= nbytes <= MAX_BYTES:
        raise InputError(source, place, f"{nbytes} bytes", "0 to 2^63-1 bytes")


def _check_layout(tensor: Tensor, source: str) -> None:
    place = f"tensor {tensor.name!r}"
    strides = tensor.strides
    if strides is not None and len(strides) != len(tensor.shape):
        expected = f"one for each of {len(tensor.shape)} dimensions"
        raise InputError(source, place, f"{len(strides)} strides", expected)
    if strides is not None and min(strides, default=0) < 0:
        raise InputError(source, place, f"stride {min(strides)}", "strides of 0 or more elements")
    if not 0 <= tensor.offset <= MAX_BYTES:
        raise InputError(source, place, f"offset {tensor.offset}", "0 to 2^63-1 bytes")
    if tensor.formulas and len(tensor.formulas) != len(tensor.shape):
        expected = f"one for each of {len(tensor.shape)} dimensions"
        raise InputError(source, place, f"{len(tensor.formulas)} formulas", expected)
    if tensor.layout and len(tensor.layout) != len(tensor.shape) + 1:
        expected = f"one for each of {len(tensor.shape)} dimensions and one for the offset"
        raise InputError(source, place, f"{len(tensor.layout)} layout formulas", expected)


def _check_symbols(graph: Graph, source: str) -> None:
    for symbol in graph.symbols:
        place, high = f"symbol {symbol.name!r}", MAX_BYTES if symbol.high is None else symbol.high
        if not symbol.name.isidentifier():
            raise InputError(source, place, "an invalid identifier", "letters, digits and _")
        if not 0 <= symbol.low <= high <= MAX_BYTES:
            raise InputError(source, place, f"range {symbol.low} to {symbol.high}", "0 ≤ low ≤ high < 2^63")
        if symbol.hint is not None and not symbol.low <= symbol.hint <= high:
            raise InputError(source, place, f"hint {symbol.hint}", f"within {symbol.low} to {symbol.high}")


def _check_workspaces(graph: Graph, source: str) -> None:
    for op in graph.ops:
        for nbytes in (op.workspace.shared, op.workspace.unique):
            _check_bytes(nbytes, f"op {op.name!r}, workspace", source)
    if sum(op.workspace.unique for op in graph.ops) > MAX_BYTES:
        raise InputError(source, "workspaces", "sizes whose sum passes 2^63-1", "a smaller total")


def _check_order(graph: Graph, tensors: dict[str, Tensor], source: str) -> None:
    producer = {
        name: f"graph {kind}"
        for kind, names in (("input", graph.inputs), ("constant", graph.constants))
        for name in names
    }
    ready = set(producer)
    for op in graph.ops:
        for name in op.outputs:
            if name in producer:
                raise InputError(
                    source,
                    f"op {op.name!r}",
                    f"{name!r}, already made by {producer[name]}",
                    "one producer for each tensor",
                )
            producer[name] = f"op {op.name!r}"
    for op in graph.ops:
        for name in (*op.inputs, *op.mutates, *op.outputs):
            if name not in tensors:
                raise InputError(source, f"op {op.name!r}", f"tensor {name!r}", "a tensor of the graph")
        for name in (*op.inputs, *op.mutates):
            if name not in ready:
                raise _order_error(graph, op, name, producer, source)
        ready.update(op.outputs)
    for name in tensors:
        if name not in ready:
            raise InputError(
                source,
                f"tensor {name!r}",
                "no producer",
                "an op that makes it, or a place among the graph's inputs or constants",
            )


def _order_error(graph: Graph, op: Op, name: str, producer: dict[str, str], source: str) -> InputError:
    """What is wrong when `op` reads `name` too early: nobody makes it, a cycle, or ops out of order."""
    if name not in producer:
        return InputError(
            source, f"op {op.name!r}", f"input {name!r}, which nothing makes", "a tensor with a producer"
        )
    cycle = find_cycle(
        {o.name: (*o.inputs, *o.mutates) for o in graph.ops},
        {t: o.name for o in graph.ops for t in o.outputs},
    )
    if cycle:
        return InputError(source, "ops", f"a cycle: {' → '.join(cycle)}", "a graph without cycles")
    return InputError(
        source,
        f"op {op.name!r}",
        f"{name!r} read before {producer[name]} makes it",
        "ops in an order in which they can run",
    )


def find_cycle(reads: dict[str, tuple[str, ...]], maker: dict[str, str]) -> list[str]:
    """The op names of one dependency cycle, the first repeated at the end, or [] when there is none.

    `reads` maps an op to the tensors it reads, `maker` a tensor to the op that makes it.
    """
    before = {op: [maker[name] for name in names if name in maker] for op, names in reads.items()}
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _check_roles(graph: Graph, tensors: dict[str, Tensor], source: str) -> None:
    owned = {
        kind: {tensors[name].storage for name in names}
        for kind, names in (
            ("inputs", graph.inputs),
            ("constants", graph.constants),
            ("outputs", graph.outputs),
        )
    }
    for storage in graph.storages:
        role = storage_role(storage.name, **owned)
        if storage.role is not role:
            raise InputError(source, f"storage {storage.name!r}", f"role {storage.role}", f"role {role}")


def _check_within(graph: Graph, source: str) -> None:
    """Raise InputError where the ops of a branch do not stand together, or are not followed by other branches
    of the same op and that op itself; and where they are inside more than MOST_NESTED others."""
    path: Path = ()
    ended: set[tuple[str, str]] = set()
    for op in graph.ops:
        if len(op.within) > MOST_NESTED:
            found = f"inside {len(op.within):,} ops, one in another"
            raise InputError(source, f"op {op.name!r}", found, f"at most {MOST_NESTED}")
        common = 0
        while common < min(len(path), len(op.within)) and path[common] == op.within[common]:
            common += 1
        opened = op.within[common:]
        if len(path) > common:
            is_call = not opened and op.name == path[common][0]
            is_next = bool(opened) and opened[0][0] == path[common][0]
            if len(path) > common + 1 or not (is_call or is_next):
                raise _torn(op, source, f"behind what is inside {path[-1][0]!r}", f"{path[-1][0]!r}")
        ended.update(path[common:])
        if torn := ended.intersection(opened):
            call, branch = torn.pop()
            raise _torn(op, source, f"branch {branch!r} of {call!r} again", "the ops of a branch together")
        path = op.within
    if path:
        raise InputError(source, f"op {graph.ops[-1].name!r}", "the last op", f"{path[-1][0]!r} behind it")
    _check_results(graph, source)


def _check_results(graph: Graph, source: str) -> None:
    """Raise InputError where another op than the calling one reads what is made inside it."""
    made = {name: op.within for op in graph.ops for name in op.outputs if op.within}
    for op in graph.ops if made else ():
        for name in (*op.inputs, *op.mutates):
            path = made.get(name, ())
            inside, outside = path[: len(op.within)], path[len(op.within) :]
            if inside != op.within[: len(path)] or (outside and outside[0][0] != op.name):
                raise InputError(
                    source, f"op {op.name!r}", f"{name!r}, made inside {path[-1][0]!r}", "its result"
                )
    for name in graph.outputs:
        if name in made:
            raise InputError(source, "outputs", f"{name!r}, made inside {made[name][-1][0]!r}", "its result")


def _torn(op: Op, source: str, found: str, expected: str) -> InputError:
    return InputError(source, f"op {op.name!r}", found, expected)
