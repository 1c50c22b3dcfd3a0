"""A flat ONNX model: what its nodes are inside, and how shapes follow that ONNX's inference does not know."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.formats.onnx_model.onnx_proto import node_names
from memplan_engine.graph import Path

DOMAIN = "memplan.insides"
"""Domain of nodes that the layout adds, and of calls, whose graphs are left out here."""

Shape = tuple[int, ...]
Numbers = Mapping[str, Any]
"""Arrays that are known before the model runs, by name."""


@dataclass(frozen=True, slots=True)
class Part:
    """A node of a flat model: the name of its op, and the calls and branches that it is inside.

    The op of a call, or of what it does next to the nodes inside, reads `inputs`; it is constant where all in
    `follows` are, unless it `stays`. () and None for all others.
    """

    name: str
    path: Path = ()
    inputs: tuple[str, ...] = ()
    follows: tuple[str, ...] | None = None
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A value whose shape follows from those of `sources`, and from numbers that are known: only from that of
    the first source where `control` is true, of the last one where it is false."""

    target: str
    sources: tuple[str, ...]
    shape: Callable[[Sequence[Shape], Numbers], Shape | None]
    control: str = ""

    def taken(self, numbers: Numbers) -> tuple[str, ...]:
        """Return the sources that count."""
        control = _number(numbers, self.control)
        if control is None:
            return self.sources
        return self.sources[:1] if control else self.sources[-1:]


@dataclass(frozen=True, slots=True)
class Call:
    """A node whose graphs are laid out. `control` is the value that says which branch is taken or how many
    turns there are: that of Scan along `axis`. `carried` are pairs of a value before and after a turn."""

    kind: str
    control: str
    axis: int = 0
    carried: tuple[tuple[str, str], ...] = ()


class ContradictionError(InputError):
    """A shape that is declared and cannot be."""


@dataclass(slots=True)
class Layout:
    """A flat model, with a part for each of its nodes, and its calls by the names of their ops.

    `copies` says of the copy of a branch's result of which value it is, and which output of the call it
    becomes. `homes` says of other values in whose storage they live.
    """

    model: Any
    parts: list[Part]
    calls: dict[str, Call] = field(default_factory=dict)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)

    def decided(self, shapes: Mapping[str, Shape], numbers: Numbers) -> dict[str, int]:
        """Return by call which branch it takes (1 for `then`), or that it has no second turn (1), where that
        follows from shapes and numbers."""
        found: dict[str, int] = {}
        for name, call in self.calls.items():
            number = _number(numbers, call.control)
            if call.kind == "Scan":
                sizes = shapes.get(call.control, ())[call.axis :]
                number = sizes[0] if sizes else None
            if number is not None and call.kind == "If":
                found[name] = int(bool(number))
            elif number is not None and number < 2:
                found[name] = 1
        return found

    def fill(self, inferred: Any, shapes: Mapping[str, Shape], numbers: Numbers) -> bool:
        """Put the shapes that follow from `shapes`, which are those of `inferred`, into the model; return
        whether there were any."""
        graph, known = self.model.graph, dict(shapes)
        types = {value.name: value.type for value in values_of(inferred)}
        elements = {name: kind.tensor_type.elem_type for name, kind in types.items()}
        elements.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
        infos = {value.name: value for value in (*graph.value_info, *graph.output)}
        before = -1
        while before < len(known):
            before = len(known)
            for link in self.links:
                sources = link.taken(numbers)
                if link.target in known or not known.keys() >= {*sources}:
                    continue
                shape = link.shape([known[name] for name in sources], numbers)
                if shape is None or not _may_be(types.get(link.target), shape):
                    continue
                known[link.target] = shape
                element = elements.get(link.target) or elements.get(sources[0], 0)
                elements[link.target] = element
                info = infos[link.target] if link.target in infos else graph.value_info.add(name=link.target)
                info.type.CopyFrom(tensor_type(element, shape))
        return len(known) > len(shapes)

    def check(self, shapes: Mapping[str, Shape], numbers: Numbers, source: str) -> None:
        """Raise ContradictionError for a value whose shape neither follows nor is that of a branch."""
        for link in self.links:
            sources = [shapes[name] for name in link.taken(numbers) if name in shapes]
            if link.target not in shapes or len(sources) < len(link.taken(numbers)):
                continue
            found, shape = shapes[link.target], link.shape(sources, numbers)
            if shape is not None and found not in (shape, *sources):
                raise ContradictionError(source, f"tensor {link.target!r}", f"the shape {found}", str(shape))

    def without_calls(self) -> Any:
        """Return the model without the nodes that ONNX has no schemas for: it overlooks errors after them."""
        plain = type(self.model)()
        plain.CopyFrom(self.model)
        del plain.graph.node[:]
        plain.graph.node.extend(node for node in self.model.graph.node if node.domain != DOMAIN)
        return plain

    def with_calls(self, inferred: Any) -> Any:
        """Return the model with what `inferred`, which is `without_calls`, says of its values."""
        whole = type(self.model)()
        whole.CopyFrom(self.model)
        for values in ("input", "output", "value_info"):
            del getattr(whole.graph, values)[:]
            getattr(whole.graph, values).extend(getattr(inferred.graph, values))
        return whole


def as_it_is(model: Any) -> Layout:
    """Return `model` with nothing laid out."""
    return Layout(model, [Part(name) for name in node_names(model.graph)])


def values_of(graph: Any) -> Iterator[Any]:
    """Yield what a graph says of its values."""
    for values in (graph.value_info, graph.output, graph.input):
        yield from values


def tensor_type(element: int, shape: Iterable[int] | None) -> Any:
    """Return the TypeProto of a tensor, whose shape is None where it is not known."""
    from onnx import helper

    return helper.make_tensor_type_proto(element, None if shape is None else list(shape))


def _number(numbers: Numbers, name: str) -> int | None:
    known = numbers.get(name)
    return int(known.ravel()[0]) if known is not None and known.size else None


def _may_be(kind: Any, shape: Shape) -> bool:
    """Return whether a value that is declared to be of this type can have `shape`."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return True
    dims = kind.tensor_type.shape.dim
    return len(dims) == len(shape) and all(
        dim.dim_value < 0 or not dim.HasField("dim_value") or dim.dim_value == size
        for dim, size in zip(dims, shape, strict=True)
    )


def same(sources: Sequence[Shape], _: Numbers) -> Shape:
    """Return the shape of the one source."""
    return sources[0]


def of_one(sources: Sequence[Shape], _: Numbers) -> Shape:
    """Return the shape of one of a batch."""
    return sources[0][1:]


def largest(sources: Sequence[Shape], _: Numbers) -> Shape | None:
    """Return the shape that is the largest along each axis."""
    largest = max(sources, key=math.prod)
    reached = all(
        len(shape) == len(largest) and all(a <= b for a, b in zip(shape, largest, strict=True))
        for shape in sources
    )
    return largest if reached else None


def final(batches: bool, sources: Sequence[Shape], _: Numbers) -> Shape | None:
    """Return the shape of a value after all turns, which is that after one and before one."""
    end, start, *scanned = sources
    if end != start:
        return None
    return (*scanned[0][:1], *end) if batches else end


def row(axis: int, batches: bool, sources: Sequence[Shape], _: Numbers) -> Shape:
    """Return the shape of a row along `axis`; of batches, of a row of a sequence."""
    (shape,) = sources
    at = axis + len(shape) * (axis < 0)
    return shape[2:] if batches else shape[:at] + shape[at + 1 :]


def stacked(axes: tuple[int, int], batches: bool, sources: Sequence[Shape], _: Numbers) -> Shape:
    """Return the shape of rows put together: as many as a scanned value has along the first of `axes`, along
    the second one."""
    piece, scanned = sources
    if batches:
        return (*scanned[:2], *piece)
    at = axes[1] + (len(piece) + 1) * (axes[1] < 0)
    return (*piece[:at], *scanned[axes[0] :][:1], *piece[at:])


def counted(trips: str, goes_on: Sequence[str], sources: Sequence[Shape], numbers: Numbers) -> Shape | None:
    """Return the shape of a row of each turn of a Loop, where it is known how many there are."""
    turns = _number(numbers, trips)
    if turns is None or not all(_number(numbers, name) for name in goes_on):
        return None
    return (max(turns, 0), *sources[0])
