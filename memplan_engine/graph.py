"""The graph of a model: tensors, the storages they live in, and the ops that make and read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from memplan_engine.errors import InputError

MAX_BYTES = 2**63 - 1

Named = TypeVar("Named", "Storage", "Tensor", "Op")


class Role(StrEnum):
    """Where a storage comes from, or what it is kept for."""

    INPUT = "input"
    CONSTANT = "constant"
    ACTIVATION = "activation"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Storage:
    """What is allocated once. Views, getitems and in-place results are tensors of one storage.

    `nbytes` is the whole allocation in bytes, whatever part of it the tensors show. `role` is INPUT or
    CONSTANT when the storage belongs to the caller or to the weights, even if the graph returns it;
    OUTPUT when the graph made it and returns it; else ACTIVATION. `alignment` 0 means the plan's own.
    """

    name: str
    nbytes: int
    role: Role
    alignment: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value of the graph. `nbytes` is elements × item size, which for an expanded view is more than
    its storage holds."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    storage: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's code an op comes from: `file`, `line` (1-based), and the text of that line."""

    file: str
    line: int
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Op:
    """One operation. `inputs`, `outputs` and `mutates` are tensor names; `mutates` are inputs written in
    place. `module` is the dotted `nn.Module` path, "" when there is none."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    mutates: tuple[str, ...] = ()
    module: str = ""
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A model's graph with its ops in a valid order. `inputs`, `outputs` and `constants` are tensor names;
    every other tensor is made by exactly one op. Check one with `check_graph`."""

    name: str
    storages: tuple[Storage, ...]
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...] = ()


def storage_bytes(graph: Graph, role: Role) -> int:
    """Bytes of all storages of one role."""
    return sum(storage.nbytes for storage in graph.storages if storage.role is role)


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
    _by_name(graph.ops, "op", source)
    for storage in graph.storages:
        _check_bytes(storage.nbytes, f"storage {storage.name!r}", source)
    for tensor in graph.tensors:
        _check_bytes(tensor.nbytes, f"tensor {tensor.name!r}", source)
        if tensor.storage not in storages:
            raise InputError(
                source, f"tensor {tensor.name!r}", f"storage {tensor.storage!r}", "a storage of the graph"
            )
    for field, names in (
        ("inputs", graph.inputs),
        ("constants", graph.constants),
        ("outputs", graph.outputs),
    ):
        for name in names:
            if name not in tensors:
                raise InputError(source, field, f"tensor {name!r}", "a tensor of the graph")
    _check_order(graph, tensors, source)
    _check_roles(graph, tensors, source)
    if sum(storage.nbytes for storage in graph.storages) > MAX_BYTES:
        raise InputError(source, "storages", "sizes whose sum passes 2^63-1", "a smaller total")
    return graph


def _by_name(items: Iterable[Named], what: str, source: str) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for item in items:
        if item.name in found:
            raise InputError(source, f"{what} {item.name!r}", "the name twice", "unique names")
        found[item.name] = item
    return found


def _check_bytes(nbytes: int, place: str, source: str) -> None:
    if not 0 <= nbytes <= MAX_BYTES:
        raise InputError(source, place, f"{nbytes} bytes", "0 to 2^63-1 bytes")


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
    done: set[str] = set()
    for root in reads:
        path: dict[str, None] = {}
        stack = [(root, iter(reads[root]))] if root not in done else []
        if stack:
            path[root] = None
        while stack:
            op, pending = stack[-1]
            before = next((maker[t] for t in pending if t in maker and maker[t] not in done), None)
            if before is None:
                done.add(op)
                path.pop(op)
                stack.pop()
            elif before in path:
                names = list(path)
                return [*names[names.index(before) :], before][::-1]
            else:
                path[before] = None
                stack.append((before, iter(reads[before])))
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
