"""ONNX models with named dimensions that nobody bound: a graph at the hints, with formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.formats.formula_text import size_text
from memplan_engine.formats.onnx_model.onnx_dimensions import Dimensions
from memplan_engine.formats.onnx_model.onnx_fit_formulas import FormulaFit, Known, Numbers, Window
from memplan_engine.formats.onnx_model.onnx_layout import ContradictionError
from memplan_engine.formats.onnx_model.onnx_proto import ELEMENTS
from memplan_engine.graph import Graph, Symbol, Tensor, check_graph
from memplan_engine.symbolic.expression import to_sympy

LADDER = (37, 54, 83, 120, 171, 233, 301, 350, 431, 510)
"""Values at which shapes are inferred: far apart, even and odd, and small enough for `onnx_shapes`."""
STEPS = (1, 3, 7, 9)
SMALL = (1, 2, 3, 5)
ROUND = (8, 16, 24, 40, 48, 80, 96, 144, 240, 336)
"""Where too few of the others suit: a dimension that is a half or an eighth of a symbol."""
FEWEST_POINTS = 8

Point = Mapping[str, int]
Shapes = Mapping[str, tuple[int, ...]]
BITS = dict(ELEMENTS.values())


def points(names: Sequence[str], hints: Point, ladder: Sequence[int] = LADDER) -> list[dict[str, int]]:
    """Values for the symbols: their hints first, then each symbol through `ladder` in an order of its own,
    then small ones."""
    several = [
        {
            name: ladder[(place * STEPS[index % len(STEPS)] + index) % len(ladder)]
            for index, name in enumerate(names)
        }
        for place in range(len(ladder))
    ]
    small = [
        {name: SMALL[(place + index) % len(SMALL)] for index, name in enumerate(names)}
        for place in range(len(SMALL))
    ]
    return [dict(hints), *several, *small, dict.fromkeys(names, 1)]


def with_formulas(
    graph: Graph,
    dimensions: Dimensions,
    hints: Point,
    bound: Point,
    shapes_at: Callable[[Point], Shapes],
    nodes: Any,
) -> Graph:
    """`graph`, which is the model of `dimensions` at `hints`, with symbols and formulas.

    The symbols in `bound` have one value. `shapes_at` gives the shapes of all tensors at other values of the
    symbols, and `nodes` are the model's.

    Raises
    ------
    InputError: hints at which a window does not fit, a model that does not allow its dimensions to vary
        independently, or a size that is no formula.
    """
    import sympy

    source, names = dimensions.source, list(hints)

    def checked(point: Point) -> Shapes:
        shapes = shapes_at(point)
        _check_windows(nodes, shapes, source)
        return shapes

    try:
        checked(hints)
    except InputError as error:
        raise hints_refused(error, source, hints) from None
    tried, refusals = _tried(names, hints, checked)
    if len(tried) < FEWEST_POINTS:
        raise _not_free(source, [dimensions.words(name) for name in names], refusals)
    columns = {t.name: [shapes.get(t.name) for _, shapes in tried] for t in graph.tensors}
    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in names}
    known = [Known(tuple(point[name] for point, _ in tried), symbol) for name, symbol in symbols.items()]
    sizes = [dimensions.sizes({**bound, **point}) for point, _ in tried]
    values = {name: sympy.Integer(value) for name, value in bound.items()}
    for text in dimensions.of_inputs:
        formula = dimensions.formulas[text]
        if not formula.names.isdisjoint(symbols):
            in_symbols = to_sympy(formula, {**values, **symbols})
            known.append(Known(tuple(size[text] for size in sizes), in_symbols))
    makers = {name: node for node in nodes for name in node.output}
    formulas = _fitted(graph, FormulaFit(tuple(known)), columns, makers, names, source)
    low = {name: _lowest(name, hints, checked) for name in names}
    found = tuple(
        Symbol(name, low[name], None, hints[name], dimensions.called.get(name, "")) for name in names
    )
    tensors = tuple(_tensor(tensor, formulas[tensor.name]) for tensor in graph.tensors)
    texts = {tensor.name: _bytes_text(tensor, formulas[tensor.name]) for tensor in graph.tensors}
    largest = {tensor.storage: tensor.name for tensor in sorted(graph.tensors, key=lambda t: t.nbytes)}
    storages = tuple(replace(storage, formula=texts[largest[storage.name]]) for storage in graph.storages)
    return check_graph(replace(graph, storages=storages, tensors=tensors, symbols=found), source)


def hints_refused(error: InputError, source: str, hints: Point) -> InputError:
    """`error`, which the model raised at `hints`, told so."""
    at = ", ".join(f"{name}={value}" for name, value in hints.items())
    return type(error)(source, f"hints {at}", _why(error), "hints at which the model has shapes")


def _why(error: InputError) -> str:
    """Return what an error of a model found."""
    if isinstance(error, ContradictionError):
        return f"{error.place} with {error.found}, not {error.expected}"
    return f"{error.found} ({error.place})"


def _tried(
    names: Sequence[str], hints: Point, shapes_at: Callable[[Point], Shapes]
) -> tuple[list[tuple[Point, Shapes]], list[InputError]]:
    """The points at which the model has shapes, with them; and why it has none at others."""
    tried: list[tuple[Point, Shapes]] = []
    refusals: list[InputError] = []
    for ladder in (LADDER, ROUND):
        for point in points(names, hints, ladder):
            try:
                tried.append((point, shapes_at(point)))
            except InputError as error:
                refusals.append(error)
        if len(tried) >= FEWEST_POINTS:
            break
    return tried, refusals


def _fitted(
    graph: Graph,
    fit: FormulaFit,
    columns: Mapping[str, Sequence[tuple[int, ...] | None]],
    nodes: Mapping[str, Any],
    names: Sequence[str],
    source: str,
) -> dict[str, list[Any]]:
    """Tensor → the formulas of its dimensions."""
    made_by = {name: op for op in graph.ops for name in op.outputs}
    known: dict[str, list[Known]] = {}
    for tensor in graph.tensors:
        shape = _by_axis(columns[tensor.name], tensor)
        op = made_by.get(tensor.name)
        inputs = [known[name] for name in op.inputs if name in known] if op else []
        formulas = None
        if shape is not None:
            formulas = fit.shape(shape, inputs, _windows(nodes.get(tensor.name)))
        if shape is None or formulas is None:
            found = f"a size that is no formula in {', '.join(names)}"
            expected = f"sizes that follow from theirs: bind {', '.join(names)} with --dim NAME=VALUE"
            raise InputError(source, f"tensor {tensor.name!r}", found, expected)
        known[tensor.name] = [Known(*pair) for pair in zip(shape, formulas, strict=True)]
    return {name: [size.formula for size in shape] for name, shape in known.items()}


def _by_axis(shapes: Sequence[tuple[int, ...] | None], tensor: Tensor) -> list[Numbers] | None:
    """The sizes of one tensor at every point, by dimension; None where it has another number of them."""
    known = [shape for shape in shapes if shape is not None and len(shape) == len(tensor.shape)]
    return [*zip(*known, strict=True)] if len(known) == len(shapes) else None


def _windows(node: Any) -> dict[int, Window]:
    """Axis, counted from the end → the window that a convolution or pooling slides along it."""
    if node is None or node.op_type not in ("Conv", "MaxPool", "AveragePool", "LpPool"):
        return {}
    plain = {attribute.name: list(attribute.ints) for attribute in node.attribute if attribute.ints}
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    same = any(part.s.startswith(b"SAME") for part in node.attribute if part.name == "auto_pad")
    kernel = plain.get("kernel_shape", [])
    count = len(kernel)
    strides, dilations = plain.get("strides", [1] * count), plain.get("dilations", [1] * count)
    pads = plain.get("pads", [0] * 2 * count)
    windows = {}
    for axis in range(count):
        extra = pads[axis] + pads[count + axis] - dilations[axis] * (kernel[axis] - 1) - 1
        up = strides[axis] - 1 if numbers.get("ceil_mode") else 0
        windows[axis - count] = Window(strides[axis], -1 if same else extra + up)
    return windows


def _check_windows(nodes: Any, shapes: Shapes, source: str) -> None:
    """Raise InputError where a window is larger than what it slides over: inference answers with sizes that
    nothing has."""
    for node in nodes:
        for axis, window in _windows(node).items():
            size = shapes.get(node.input[0], ())[axis:]
            if size and size[0] + window.extra < 0:
                found = f"a size of {size[0]}, which is less than its window"
                place = f"node {node.name or node.output[0]!r}"
                raise InputError(source, place, found, "windows that fit")


def _tensor(tensor: Tensor, formulas: Sequence[Any]) -> Tensor:
    if all(formula.is_Integer for formula in formulas):
        return tensor
    return replace(tensor, formulas=tuple(size_text(formula) for formula in formulas))


def _bytes_text(tensor: Tensor, formulas: Sequence[Any]) -> str:
    import sympy

    bits = sympy.Integer(BITS[tensor.dtype]) * sympy.prod(formulas)
    if bits.is_Integer:
        return ""
    return size_text(bits / 8 if BITS[tensor.dtype] % 8 == 0 else sympy.floor((bits + 7) / 8))


def _lowest(name: str, hints: Point, shapes_at: Callable[[Point], Shapes]) -> int:
    """The smallest value of one dimension, the others at their hints, at which the model has shapes: a
    convolution needs a side as long as its kernel."""
    below, least = 0, hints[name]
    while least - below > 1:
        middle = (below + least) // 2 if below else 1
        try:
            shapes_at({**hints, name: middle})
            least = middle
        except InputError:
            below = middle
    return least


def _not_free(source: str, names: Sequence[str], refusals: Sequence[InputError]) -> InputError:
    """Return the error for a model that is refused at many sizes, of the kind of the first refusal."""
    first = refusals[0]
    why = _why(first) if isinstance(first, ContradictionError) else first.found
    found = f"a model whose dimensions {', '.join(names)} cannot take any sizes ({why})"
    return type(first)(source, "dimensions", found, "one for all sizes: bind some with --dim NAME=VALUE")
