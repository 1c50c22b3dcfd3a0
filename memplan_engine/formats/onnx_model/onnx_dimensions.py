"""The named dimensions of an ONNX model as symbols.

A dimension's name is text that whoever wrote the file chose. One that can be a symbol keeps its name; another
one ("batch size", "?", or none at all) becomes `s0`, `s1`, …; and a formula in others ("2*s0", "past + 1") is
no symbol, but follows them. Values are accepted under the symbol, under the name in the file, and for a
formula.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.formats.formula_text import is_symbol_name
from memplan_engine.formats.onnx_model.onnx_layout import sizes_of
from memplan_engine.formats.onnx_model.onnx_proto import subgraphs
from memplan_engine.symbolic.expression import Formula, parse, to_sympy

DEFAULT_HINT = 2
MOST_DOUBLINGS = 12
"""Doublings of the default hint to try until each formula has a size: `n//8` needs 8."""
HYPHENATED = re.compile(r"[A-Za-z_]\w*(?:[-/]\w+)+")
"""May be a name ("batch-size") as well as a formula: a formula where all its parts are dimensions."""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The dimensions of one model by symbol.

    `free` are the symbols of its inputs, `others` the names that only results have. `called` is the name in
    the file of a symbol that the file calls otherwise. `formulas` are the dimensions that follow from
    symbols, by their text; `of_inputs` are those that an input has.
    """

    source: str
    free: tuple[str, ...]
    others: tuple[str, ...]
    called: Mapping[str, str]
    formulas: Mapping[str, Formula]
    of_inputs: frozenset[str]

    def given(self, values: Mapping[str, int], place: str) -> dict[str, int]:
        """`values` by symbol; `place` is the option that they come from.

        Raises
        ------
        InputError: a name that the model does not have, a number below 1, two values for one symbol, or a
            value of a formula that does not say the values of its symbols.
        """
        own = (*self.free, *self.others)
        symbols = {self.called.get(name, name): name for name in own} | {name: name for name in own}
        found: dict[str, int] = {}
        formulas: list[tuple[str, Formula, int]] = []
        for name, value in values.items():
            formula = None if name in symbols else self._formula(name)
            if formula is None and name not in symbols:
                names = ", ".join(map(self.words, own))
                expected = f"one of {names}" if names else "none, as every dimension is a number"
                raise InputError(self.source, place, f"the dimension {name!r}", expected)
            if value < 1:
                raise InputError(self.source, f"{place} {name}", str(value), "1 or more")
            if formula is not None:
                formulas.append((name, formula, value))
            elif found.setdefault(symbols[name], value) != value:
                both = f"{found[symbols[name]]} and {value}"
                raise InputError(self.source, f"{place} {name}", both, "one value for a dimension")
        for name, formula, value in sorted(formulas, key=lambda each: len(each[1].names - found.keys())):
            self._solve(name, formula, value, found, place)
        return found

    def asked(
        self, dims: Mapping[str, int], hints: Mapping[str, int]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the values that bind dimensions, by symbol, and the hints of the inputs' dimensions that are
        left."""
        values = self.given(dims, "--dim")
        left = replace(self, free=tuple(name for name in self.free if name not in values))
        given = left.given(hints, "hints")
        bound = {**values, **{name: value for name, value in given.items() if name not in left.free}}
        return bound, self.hints(given, bound)

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        """The sizes of all dimensions that follow from `values`, by their text: these, and formulas in them.

        Raises
        ------
        InputError: a formula of an input that is not a whole number of 1 or more.
        """
        sizes = dict(values)
        for text, formula in self.formulas.items():
            if not values.keys() >= formula.names:
                continue
            size = _size_at(formula, values)
            if size is not None and size >= (text in self.of_inputs):
                sizes[text] = size
            elif text in self.of_inputs:
                at = ", ".join(f"{symbol}={values[symbol]}" for symbol in sorted(formula.names))
                expected = "values at which it is a whole number of 1 or more"
                raise InputError(self.source, f"dimension {text!r}", f"no size at {at}", expected)
        return sizes

    def hints(self, given: Mapping[str, int], bound: Mapping[str, int]) -> dict[str, int]:
        """A hint for each free symbol that is not `bound`: that of `given`, else DEFAULT_HINT, or the next
        power of two at which all formulas have sizes.

        Raises
        ------
        InputError: a symbol without a value that the file has a formula for which cannot be read.
        """
        free = [name for name in self.free if name not in bound]
        for name in free:
            text = self.called.get(name, "")
            parts = {*re.findall(r"\w+", text)} if re.search(r"\w\(", text) else set()
            if name not in given and not parts.isdisjoint((*self.free, *self.others)):
                expected = f"a value for it, as in --symbol '{text}=VALUE'"
                raise InputError(
                    self.source, f"dimension {text!r}", "a formula that cannot be read", expected
                )
        for doublings in range(MOST_DOUBLINGS):
            hints = {name: given.get(name, DEFAULT_HINT << doublings) for name in free}
            values = {**bound, **hints}
            if all(_size_at(self.formulas[text], values) for text in self.of_inputs):
                return hints
        return {name: given.get(name, DEFAULT_HINT) for name in free}

    def words(self, symbol: str) -> str:
        """The symbol, with its name in the file where that is another one."""
        return f"{symbol} ({self.called[symbol]!r})" if symbol in self.called else symbol

    def _formula(self, text: str) -> Formula | None:
        if text in self.formulas:
            return self.formulas[text]
        read = _read(text)
        return next((each for each in self.formulas.values() if read and each.root == read.root), None)

    def _solve(self, name: str, formula: Formula, value: int, found: dict[str, int], place: str) -> None:
        """Put into `found` the one value of the symbol that `formula` is `value` at."""
        import sympy

        unknown = sorted(formula.names - found.keys())
        if len(unknown) > 1:
            raise InputError(self.source, f"{place} {name}", str(value), f"a value for {unknown[0]}, too")
        if not unknown:
            if _size_at(formula, found) != value:
                at = ", ".join(f"{symbol}={found[symbol]}" for symbol in sorted(formula.names))
                raise InputError(self.source, f"{place} {name}", str(value), f"{formula.at(found)}, as {at}")
            return
        symbol = sympy.Symbol(unknown[0], integer=True)
        rest = to_sympy(formula).subs(found) - value
        roots = []
        if rest.is_polynomial(symbol) and rest.free_symbols:
            roots = [
                root for root in sympy.Poly(rest, symbol).ground_roots() if root.is_Integer and root >= 1
            ]
        if len(roots) != 1:
            expected = f"one that only one {unknown[0]} gives: a value for {unknown[0]} instead"
            raise InputError(self.source, f"{place} {name}", str(value), expected)
        found[unknown[0]] = int(roots[0])


def name_dimensions(graph: Any, source: str) -> Dimensions:
    """Give the dimensions of a GraphProto, and of the graphs inside it, the names of their symbols, in place.

    A dimension of an input that has neither a number nor a name is called `input[axis]` in the file's place.
    """
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if _is_open(dim):
                dim.dim_param = f"{value.name}[{axis}]"
    everything = list(dict.fromkeys(dim.dim_param for dim in _dims(graph) if dim.dim_param))
    formulas = _formulas(everything)
    inputs = list(dict.fromkeys(dim.dim_param for dim in _input_dims(graph) if dim.dim_param))
    of_inputs = frozenset(text for text in inputs if text in formulas)
    own = [text for text in inputs if text not in formulas]
    own += [name for text in inputs if text in formulas for name in sorted(formulas[text].names)]
    symbols = symbol_names(list(dict.fromkeys(own)), everything)
    for dim in _dims(graph):
        dim_param = symbols.get(dim.dim_param, "")
        if dim_param:
            dim.dim_param = dim_param
    others = [text for text in everything if text not in formulas and text not in symbols]
    called = {symbol: name for name, symbol in symbols.items() if symbol != name}
    return Dimensions(source, tuple(symbols.values()), tuple(others), called, formulas, of_inputs)


def name_results(graph: Any, inferred: Any, dimensions: Dimensions) -> Dimensions:
    """Give the dimensions of results that nothing says the names that they can be bound by, in place.

    `inferred` is `graph` with shapes, inferred without the names that its outputs declare. A dimension that
    inference made up is called as an output that has the same one declares it, else `result[axis]`.
    """
    known = {*dimensions.free, *dimensions.others, *dimensions.formulas}
    types = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
    names: dict[str, str] = {}
    for value in graph.output:
        shape = types[value.name].tensor_type.shape.dim if value.name in types else ()
        for dim, said in zip(shape, value.type.tensor_type.shape.dim, strict=False):
            if _is_open(dim, known) and dim.dim_param and said.dim_param:
                names.setdefault(dim.dim_param, said.dim_param)
    others = dict.fromkeys(dimensions.others)
    infos = {value.name: value for value in (*graph.value_info, *graph.output)}
    for result in [name for node in graph.node for name in node.output if name in types]:
        tensor = types[result].tensor_type
        if not any(_is_open(dim, known) for dim in tensor.shape.dim):
            continue
        if result not in infos:
            infos[result] = graph.value_info.add(name=result)
            infos[result].type.tensor_type.elem_type = tensor.elem_type
        shape = infos[result].type.tensor_type.shape.dim
        for axis, dim in enumerate(tensor.shape.dim):
            if axis == len(shape):
                shape.add()
            if _is_open(dim, known) and _is_open(shape[axis]):
                own = f"{result}[{axis}]"
                name = names.setdefault(dim.dim_param, own) if dim.dim_param else own
                shape[axis].dim_param = name
                others.setdefault(name)
    return replace(dimensions, others=tuple(others))


def check_results(
    graph: Any, inferred: Any, source: str, values: Mapping[str, int], free: Mapping[str, int]
) -> None:
    """Raise InputError for one of `values` by symbol that `graph` gives a dimension of an output and
    `inferred`, which is `graph` at the values in `free` alone, another one."""
    sizes = {value.name: sizes_of(value.type) for value in inferred.output}
    for value in graph.output:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, sizes.get(value.name) or (), strict=False):
            given = values.get(dim.dim_param)
            if dim.dim_param not in free and None not in (given, size) and given != size:
                at = ", ".join(f"{name}={number}" for name, number in free.items())
                expected = f"{size}, as the model gives" + (f" at {at}" if at else "")
                raise InputError(source, f"--dim {dim.dim_param}", str(given), expected)


def bind(graph: Any, dimensions: Dimensions, values: Mapping[str, int]) -> dict[str, int]:
    """Put the numbers that follow from `values`, by symbol, for the dimensions of a GraphProto, in place, and
    return them. Formulas are bound in inputs only: results have the shapes that their operators give.

    Raises
    ------
    InputError: as `Dimensions.sizes`.
    """
    sizes = dimensions.sizes(values)
    for dim in _dims(graph):
        if dim.dim_param in values:
            dim.dim_value = values[dim.dim_param]
    for dim in _input_dims(graph):
        if dim.dim_param in sizes:
            dim.dim_value = sizes[dim.dim_param]
    return sizes


def _is_open(dim: Any, known: Container[str] | None = None) -> bool:
    """Return whether a dimension has neither a number nor a (`known`) name; exporters also write −1
    for one that is open."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return False
    return not dim.dim_param or (known is not None and dim.dim_param not in known)


def _input_dims(graph: Any) -> Iterator[Any]:
    for value in graph.input:
        yield from value.type.tensor_type.shape.dim


def _dims(graph: Any) -> Iterator[Any]:
    """Yield the dimensions of a graph and its sub-graphs, those of inputs first."""
    for values in (graph.input, graph.output, graph.value_info):
        for value in values:
            yield from value.type.tensor_type.shape.dim
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _dims(inner)


def symbol_names(names: Collection[str], others: Iterable[str] = ()) -> dict[str, str]:
    """Dimension → symbol: its own name where that is one, else `s0`, `s1`, …, none of them in `others`."""
    taken = {*names, *others}
    numbered = (f"s{number}" for number in count() if f"s{number}" not in taken)
    return {name: name if is_symbol_name(name) else next(numbered) for name in names}


def _formulas(names: list[str]) -> dict[str, Formula]:
    """The dimensions that are formulas in others, by their text."""
    read = {name: formula for name in names if (formula := _read(name)) is not None}
    sure = {name for name in read if HYPHENATED.fullmatch(name) is None}
    dimensions = {name for name in names if is_symbol_name(name)}.union(*(read[name].names for name in sure))
    return {name: formula for name, formula in read.items() if name in sure or formula.names <= dimensions}


def _size_at(formula: Formula, values: Mapping[str, int]) -> int | None:
    """The size that a formula has; None where it is no whole number of 0 or more."""
    try:
        size = formula.at(values)
    except ZeroDivisionError:
        return None
    return size if isinstance(size, int) and size >= 0 else None


def _read(text: str) -> Formula | None:
    """`text` as a formula in symbols; None where it is a plain name, a number or no formula."""
    if is_symbol_name(text):
        return None
    try:
        formula = parse(text)
    except InputError:
        return None
    return formula if formula.names and all(map(is_symbol_name, formula.names)) else None
