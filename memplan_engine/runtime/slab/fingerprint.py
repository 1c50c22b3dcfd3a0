"""Which graph a plan was made for: a hash over everything that a run depends on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from itertools import zip_longest

from memplan_engine.graph import Graph, Op, Role, Tensor

PARTS = ("reads", "makes", "writes")


def fingerprint(graph: Graph) -> str:
    """SHA-256, in hexadecimal, over the ops in order (name, kind, what they read, make and write), the
    shapes, types, strides and offsets of their tensors, and which share a storage of which size and role.

    Names of inputs and constants, and how large the storages behind them are, are the caller's affair and
    left out, so that the graphs of a real model and of its fake twin have one fingerprint.
    """
    return hashlib.sha256("\n".join(_lines(graph)).encode("utf-8", "surrogatepass")).hexdigest()


def first_difference(one: Graph, other: Graph) -> str:
    """The first op in which the two graphs differ, "" where there is none."""
    for place, (mine, theirs) in enumerate(zip_longest(_lines(one), _lines(other))):
        if mine != theirs:
            names = [graph.ops[place].name if place < len(graph.ops) else "nothing" for graph in (one, other)]
            if names[0] == names[1] and names[0] != "nothing":
                parts = zip(mine.split("|"), theirs.split("|"), ("name", "kind", *PARTS), strict=True)
                here, there, part = next(each for each in parts if each[0] != each[1])
                return f"op {names[0]!r} {part} {_told(here)} here and {_told(there)} there"
            return f"op {place} is {names[0]!r} here and {names[1]!r} there"
    return ""


def _told(part: str) -> str:
    """Types and shapes alone: the rest seldom differs by itself."""
    return re.sub(r"None\+0|@\d+", "", part) or "nothing"


def _lines(graph: Graph) -> list[str]:
    """One line an op, then one for the outputs."""
    numbers: dict[str, int] = {}
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    storages = {storage.name: storage for storage in graph.storages}
    given = {tensors[name].storage for name in (*graph.inputs, *graph.constants)}

    def text(name: str) -> str:
        tensor = tensors[name]
        number = numbers.setdefault(tensor.storage, len(numbers))
        storage = storages[tensor.storage]
        size = "" if tensor.storage in given else f":{storage.nbytes}:{storage.role is Role.OUTPUT}"
        return f"{_layout(tensor)}@{number}{size}"

    lines = [_op_line(op, text) for op in graph.ops]
    return [*lines, "outputs " + " ".join(map(text, graph.outputs))]


def _op_line(op: Op, text: Callable[[str], str]) -> str:
    parts = (" ".join(map(text, names)) for names in (op.inputs, op.outputs, op.mutates))
    return "|".join((op.name, op.kind, *parts))


def _layout(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}{tensor.strides}+{tensor.offset}"
