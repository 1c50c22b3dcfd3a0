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
Pattern = tuple[int | None, ...]
"""A shape; None for a size that is not known."""
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
    shape: Callable[[Sequence[Shape], Numbers], Pattern | None]
    control: str = ""

    def taken(self, numbers: Numbers) -> tuple[str, ...]:
        """Return the sources that count."""
        control = _number(numbers, self.control)
        if control is None:
            return self.sources
        return self.sources[:1] if control else self.sources[-1:]


@dataclass(frozen=True, slots=True)
class Turns:
    """How many turns a Loop or a Scan makes: at most `trips`, none unless `first` is true, and no other one
    unless those in `goes_on` are; or one for each row of `scanned` along `axis`. "" for what there is not."""

    trips: str = ""
    first: str = ""
    goes_on: tuple[str, ...] = ()
    scanned: str = ""
    axis: int = 0

    def range(self, shapes: Mapping[str, Shape], numbers: Numbers) -> tuple[int, int | None]:
        """Return the least and the largest number of turns; None where there is no known limit."""
        if self.scanned:
            rows = shapes.get(self.scanned, ())[self.axis :][:1]
            return (rows[0], rows[0]) if rows else (0, None)
        trips, first = _number(numbers, self.trips), _number(numbers, self.first) if self.first else 1
        most = None if trips is None else max(trips, 0)
        if first == 0 or most == 0:
            return 0, 0
        if not first or (most is None and self.trips):
            return 0, most
        return most if most and all(_number(numbers, name) for name in self.goes_on) else 1, most


@dataclass(frozen=True, slots=True)
class Call:
    """A node whose graphs are laid out. `control` is the value that says which branch of an If is taken.
    `carried` are pairs of a value before and after a turn."""

    control: str = ""
    turns: Turns | None = None
    carried: tuple[tuple[str, str], ...] = ()


class ContradictionError(InputError):
    """A shape that is declared and cannot be."""


@dataclass(slots=True)
class Layout:
    """A flat model, with a part for each of its nodes, and its calls by the names of their ops.

    `copies` says of the copy of a branch's result of which value it is, and which output of the call it
    becomes. `homes` says of other values in whose storage they live. `made_of` has what the node of a value
    reads, in the order of the nodes.
    """

    model: Any
    parts: list[Part]
    calls: dict[str, Call] = field(default_factory=dict)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    made_of: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def sure(self, shapes: Mapping[str, Shape], numbers: Numbers) -> Numbers:
        """Return the numbers that hold whichever branch is taken: those that do not follow from a result that
        branches give different shapes."""
        doubtful = {
            link.target
            for link in self.links
            if link.shape is largest and len({shapes.get(name) for name in link.taken(numbers)}) > 1
        }
        if not doubtful:
            return numbers
        linked = {link.target: link.sources for link in self.links}
        for name, reads in self.made_of.items():
            if not doubtful.isdisjoint((*reads, *linked.get(name, ()))):
                doubtful.add(name)
        return {name: number for name, number in numbers.items() if name not in doubtful}

    def decided(self, shapes: Mapping[str, Shape], numbers: Numbers) -> dict[str, int]:
        """Return by call which branch it takes (1 for `then`), or that it has no second turn (1) or none at
        all (0), where that follows from shapes and numbers."""
        found: dict[str, int] = {}
        numbers = self.sure(shapes, numbers)
        for name, call in self.calls.items():
            if call.turns is not None:
                _, most = call.turns.range(shapes, numbers)
                if most is not None and most < 2:
                    found[name] = most
            elif (number := _number(numbers, call.control)) is not None:
                found[name] = int(bool(number))
        return found

    def fill(self, inferred: Any, shapes: Mapping[str, Shape], numbers: Numbers) -> bool:
        """Put the shapes that follow from `shapes`, which are those of `inferred`, into the model, also those
        of which some sizes follow; return whether there were any."""
        graph, known = self.model.graph, dict(shapes)
        numbers = self.sure(shapes, numbers)
        types = {value.name: value.type for value in values_of(inferred)}
        elements = {name: kind.tensor_type.elem_type for name, kind in types.items()}
        elements.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
        infos = {value.name: value for value in (*graph.value_info, *graph.output)}
        before, partly = -1, False
        while before < len(known):
            before = len(known)
            for link in self.links:
                sources = link.taken(numbers)
                if link.target in known:
                    continue
                patterns = [known.get(name, sizes_of(types.get(name))) for name in sources]
                if link.shape in (same, largest) and None not in patterns:
                    shape = link.shape([each for each in patterns if each is not None], numbers)
                elif known.keys() >= {*sources}:
                    shape = link.shape([known[name] for name in sources], numbers)
                else:
                    continue
                if shape is None or not _may_be(types.get(link.target), shape):
                    continue
                sizes = _narrowed(types.get(link.target), shape, link.target)
                if sizes is None:
                    continue
                if all(isinstance(size, int) for size in sizes):
                    known[link.target] = tuple(size for size in sizes if isinstance(size, int))
                partly = True
                element = elements.get(link.target) or elements.get(sources[0], 0)
                elements[link.target] = element
                if link.target not in infos:
                    infos[link.target] = graph.value_info.add(name=link.target)
                types[link.target] = tensor_type(element, sizes)
                infos[link.target].type.CopyFrom(types[link.target])
        return partly

    def check(self, shapes: Mapping[str, Shape], numbers: Numbers, source: str) -> None:
        """Raise ContradictionError for a value whose shape neither follows nor is that of a branch."""
        numbers = self.sure(shapes, numbers)
        for link in self.links:
            sources = [shapes[name] for name in link.taken(numbers) if name in shapes]
            if link.target not in shapes or len(sources) < len(link.taken(numbers)):
                continue
            found, shape = shapes[link.target], link.shape(sources, numbers)
            # Of a branch that is larger along no axis only the shapes of the branches can be.
            possible: list[Pattern] = (
                [*sources] if link.shape is largest else [] if shape is None else [shape]
            )
            if shape is not None and None not in shape and shape not in possible:
                possible.append(shape)
            if possible and not any(_fits(found, each) for each in possible):
                expected = " or ".join(dict.fromkeys(map(pattern_text, possible)))
                place = f"tensor {link.target!r}"
                raise ContradictionError(source, place, f"the shape {pattern_text(found)}", expected)

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


def tensor_type(element: int, shape: Iterable[int | str] | None) -> Any:
    """Return the TypeProto of a tensor, whose shape is None where it is not known."""
    from onnx import helper

    return helper.make_tensor_type_proto(element, None if shape is None else list(shape))


def _number(numbers: Numbers, name: str) -> int | None:
    known = numbers.get(name)
    return int(known.ravel()[0]) if known is not None and known.size else None


def _may_be(kind: Any, shape: Pattern) -> bool:
    """Return whether a value that is declared to be of this type can have `shape`."""
    told = sizes_of(kind)
    return told is None or (
        len(told) == len(shape)
        and all(size in (None, known) or known is None for known, size in zip(told, shape, strict=True))
    )


def _narrowed(kind: Any, shape: Pattern, name: str) -> list[int | str] | None:
    """Return the sizes of a type that may be `shape`, filled up from that and then with names; None where the
    type knows no less."""
    told = sizes_of(kind)
    if told is None:
        return [f"{name}[{axis}]" if size is None else size for axis, size in enumerate(shape)]
    dims = kind.tensor_type.shape.dim
    if all(size is None or known is not None for size, known in zip(shape, told, strict=True)):
        return None
    sizes: list[int | str] = []
    for axis, (known, size) in enumerate(zip(told, shape, strict=True)):
        found = size if known is None else known
        sizes.append(dims[axis].dim_param or f"{name}[{axis}]" if found is None else found)
    return sizes


def _fits(shape: Shape, pattern: Pattern) -> bool:
    """Return whether a shape has the sizes in a pattern."""
    return len(shape) == len(pattern) and all(
        wanted in (None, size) for size, wanted in zip(shape, pattern, strict=True)
    )


def fixed(pattern: Pattern) -> Shape | None:
    """Return a shape whose sizes are all known; None where one is not."""
    sizes = tuple(size for size in pattern if size is not None)
    return sizes if len(sizes) == len(pattern) else None


def sizes_of(kind: Any) -> Pattern | None:
    """Return the sizes that a TypeProto has as numbers; None without any shape."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in dims)


def pattern_text(shape: Pattern) -> str:
    """Return the text of a shape: (?, 8)."""
    return str(tuple(shape)).replace("None", "?")


def _common(shapes: Sequence[Pattern]) -> Pattern | None:
    """Return the sizes that all shapes have; None where they have several numbers of dimensions."""
    if len({len(shape) for shape in shapes}) > 1:
        return None
    return tuple(sizes[0] if len({*sizes}) == 1 else None for sizes in zip(*shapes, strict=True))


def same(sources: Sequence[Pattern], _: Numbers) -> Pattern:
    """Return the shape of the one source, as far as it is known."""
    return sources[0]


def of_one(sources: Sequence[Shape], _: Numbers) -> Shape:
    """Return the shape of one of a batch."""
    return sources[0][1:]


def largest(sources: Sequence[Pattern], _: Numbers) -> Pattern | None:
    """Return the shape that is the largest along each axis, or the sizes that all have."""
    shapes = [shape for source in sources if (shape := fixed(source)) is not None]
    largest = max(shapes, key=math.prod, default=())
    reached = len(shapes) == len(sources) and all(
        len(shape) == len(largest) and all(a <= b for a, b in zip(shape, largest, strict=True))
        for shape in shapes
    )
    return largest if reached else _common(sources)


def final(
    batches: bool, turns: Turns, always: Pattern | None, sources: Sequence[Shape], numbers: Numbers
) -> Pattern | None:
    """Return the shape of a value after all turns: that after one and before one, if they are the same, or
    the larger one of them if there is no second turn. Else it has the sizes it has `always` after a turn."""
    end, start, *scanned = sources
    least, most = turns.range({turns.scanned: scanned[0]} if scanned else {}, numbers)
    if most == 0:
        return start
    if end == start or (least, most) == (1, 1):
        return (*scanned[0][:1], *end) if batches else end
    if most == 1 and not batches:
        return largest([start, end], numbers)
    if batches or len(start) != len(end):
        return None
    always = always or (None,) * len(end)
    kept = (size if least or size == old else None for size, old in zip(always, start, strict=True))
    return tuple(kept)


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


def counted(turns: Turns, sources: Sequence[Shape], numbers: Numbers) -> Pattern:
    """Return the shape of a row of each turn of a Loop."""
    least, most = turns.range({}, numbers)
    return (most if least == most else None, *sources[0])
