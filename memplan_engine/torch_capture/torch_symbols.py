"""The symbols of an exported program: their names, ranges and hints, and what sizes are in terms of them.

torch has functions of its own for division, remainders and rounding; each is put into whole numbers, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.formats.formula_text import NoFormulaError, is_symbol_name, size_text
from memplan_engine.graph import Symbol
from memplan_engine.torch_capture.torch_run import Held, Run

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx import GraphModule, Node

MOST_DENOMINATOR = 2**20
"""Of a scale factor, which torch has as a float: 2.5 is exactly 5/2, but 0.7 is no fraction of small
numbers, and what it gives depends on how floats are rounded (0.7 * 170 is a little less than 119)."""
MOST_CASES = 8
"""Formulas of which one or another is the largest: what an operator holds inside has one, as a rule."""
NO_LIMIT = 2**31 - 2
"""Upper ends of a range from here on are torch's ways of saying that it knows none."""


@dataclass(frozen=True, slots=True)
class Size:
    """A size: the number at the hints (0 where it depends on the data), and the formula, "" for a plain
    number."""

    number: int
    formula: str = ""


@dataclass(slots=True)
class Sizes:
    """Tells sizes of one program, and collects the symbols in them in the order in which they are met.

    `ranges` are the program's range constraints by symbol, as torch keeps them. A symbol is called as its
    Dim; without one `s0`, `s1`, …, or, where it depends on the data, `u0`, `u1`, ….
    """

    source: str
    ranges: Mapping[Any, Any]
    symbols: list[Symbol] = field(default_factory=list)
    _names: dict[Any, str] = field(default_factory=dict)
    _texts: dict[Any, str] = field(default_factory=dict)

    def size(self, value: Any, place: str) -> Size:
        """The size that `value`, an int or a SymInt, is; `place` is named where it is no formula.

        Raises
        ------
        InputError: an expression that is no formula of whole numbers.
        """
        if isinstance(value, int):
            return Size(value)
        expression = value.node.expr.xreplace(self._settled(value.node))
        if expression.is_Integer:
            return Size(int(expression))
        if expression not in self._texts:
            self._texts[expression] = self._text(expression, value.node.shape_env, place)
        hint = value.node.hint if value.node.has_hint() else None
        return Size(0 if hint is None else int(hint), self._texts[expression])

    def largest(self, values: Sequence[Any], place: str) -> Size | None:
        """The largest of `values`, ints and SymInts, at every value of the symbols; None where that takes too
        many cases, or is no formula of whole numbers."""
        from sympy import sympify
        from torch.utils._sympy.functions import Max

        symbolic = {value.node.expr: value.node for value in values if not isinstance(value, int)}
        number = max((value for value in values if isinstance(value, int)), default=0)
        if not symbolic:
            return Size(number)
        node = next(iter(symbolic.values()))
        maximal: list[Any] = []
        for candidate in (number, *symbolic):
            settled = self._settled(symbolic[candidate]) if candidate in symbolic else {}
            expression = sympify(candidate).xreplace(settled)
            if not any(_never_less(other, expression) for other in maximal):
                maximal = [other for other in maximal if not _never_less(expression, other)] + [expression]
        if len(maximal) > MOST_CASES:
            return None
        most: Any = Max(*maximal) if len(maximal) > 1 else maximal[0]  # type: ignore[no-untyped-call]
        if most.is_Integer:
            return Size(int(most))
        hints = node.shape_env.backed_var_to_val
        has_hints = all(symbol in hints for symbol in most.free_symbols)
        try:
            text = self._text(most, node.shape_env, place)
        except InputError:
            return None
        return Size(int(most.xreplace(dict(hints))) if has_hints else 0, text)

    def _settled(self, node: Any) -> dict[Any, Any]:
        """The symbols that can have one value only: torch found out late that the model fixes them."""
        return {
            symbol: bounds.lower
            for symbol in node.expr.free_symbols
            if (bounds := self._bounds(symbol, node.shape_env)).is_singleton()
        }

    def _bounds(self, symbol: Any, env: Any) -> Any:
        return self.ranges.get(symbol) or self.ranges.get(str(symbol)) or env.bound_sympy(symbol)

    def _text(self, expression: Any, env: Any, place: str) -> str:
        for symbol in sorted(expression.free_symbols - self._names.keys(), key=_rank):
            self._name(symbol, env)
        try:
            return formula_text(self._without_idle_ends(expression), self._names)
        except NoFormulaError as error:
            found = f"the size {expression}, in which {error} is not an integer formula"
            raise InputError(self.source, place, found, "sizes of +, -, *, //, %, min and max") from None

    def _without_idle_ends(self, expression: Any) -> Any:
        """`expression` without constants that cannot be the largest in the ranges, and without what cannot be
        less than a constant: torch writes the stride of a dimension as `Max(1, size)`, or of a view as
        `Min(8, 8*size)`, since sizes may be 0, which ours are not."""
        from sympy import Integer
        from torch.utils._sympy.functions import Max, Min
        from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

        low = {symbol.name: symbol.low for symbol in self.symbols}
        spans = {
            symbol: ValueRanges(Integer(low[name]), Integer(NO_LIMIT)) for symbol, name in self._names.items()
        }
        kept = {}
        for maximum in expression.atoms(Max):
            others = [part for part in maximum.args if not part.is_Integer]
            least = max(bound_sympy(part, spans).lower for part in others)
            larger = [part for part in maximum.args if part.is_Integer and part > least]
            kept[maximum] = maximum.func(*others, *larger)
        for minimum in expression.atoms(Min):
            most = min((part for part in minimum.args if part.is_Integer), default=None)
            others = [part for part in minimum.args if most is None or not part.is_Integer]
            if most is not None and all(bound_sympy(part, spans).lower >= most for part in others):
                kept[minimum] = most
        return expression.xreplace(kept)

    def _name(self, symbol: Any, env: Any) -> None:
        value = env.backed_var_to_val.get(symbol)
        hint = None if value is None else int(value)
        names = set(self._names.values())
        name = called = dim_names(env).get(symbol, "")
        if not is_symbol_name(name) or name in names:
            letter = "u" if hint is None else "s"
            name = next(f"{letter}{n}" for n in range(len(names) + 1) if f"{letter}{n}" not in names)
        self._names[symbol] = name
        bounds = self._bounds(symbol, env)
        # torch's own lower end is 0 for a Dim that does not say; no size of an input that is planned for is.
        low, high = max(_low(bounds.lower), 0 if hint is None else 1), _high(bounds.upper)
        self.symbols.append(Symbol(name, low, high, hint, called if called != name else ""))


def _never_less(one: Any, other: Any) -> bool:
    """Whether `one` is at least as large as `other` at all values, as far as sympy sees."""
    return bool((one - other).expand().is_nonnegative)


def layout_of(tensor: Any, dims: Sequence[Size], sizes: Sizes, place: str) -> tuple[Size, ...]:
    """The strides of `tensor` in elements and its offset in bytes; () where `Tensor.layout` needs none: plain
    numbers in a plain shape, a row-major tensor at offset 0, or what is no formula of whole numbers."""
    strides, offset = tensor.stride(), tensor.storage_offset()
    if all(isinstance(number, int) for number in _numbers(tensor)):
        return ()
    try:
        stride_sizes = [sizes.size(stride, place) for stride in strides]
        start = sizes.size(offset * tensor.element_size(), place)
        row_major = _is_row_major(tensor, dims, stride_sizes, sizes, place)
    except InputError:  # `resolve` is wary of a tensor without
        return ()
    if start == Size(0) and row_major:
        return ()
    return (*stride_sizes, start)


def _is_row_major(tensor: Any, dims: Sequence[Size], strides: Sequence[Size], sizes: Sizes, at: str) -> bool:
    """Whether `tensor` is row-major at all values. torch writes strides with and without `Max(1, …)`."""
    import torch

    plain = guarded = 1
    for dim, size, stride in reversed(list(zip(tensor.shape, dims, strides, strict=True))):
        if size != Size(1) and stride not in (sizes.size(plain, at), sizes.size(guarded, at)):
            return False
        plain, guarded = plain * dim, guarded * torch.sym_max(dim, 1)  # type: ignore[no-untyped-call]
    return True


def symbolic_mode(module: GraphModule) -> FakeTensorMode | None:
    """The mode in which `module` was traced, if any size in it is symbolic: its symbols are known there."""
    import torch
    from torch.utils import _pytree as pytree

    for node in module.graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(leaf, torch.Tensor) and not all(isinstance(n, int) for n in _numbers(leaf)):
                return getattr(leaf, "fake_mode", None)
    return None


class SymbolicRun(Run):
    """A re-run in the mode in which the graph was traced, for the sizes in its symbols. Operators made of
    others are run by their Python implementations, as when tracing: those in C++ take sizes for the numbers
    that they are at the hints. (Those in C++ in turn say rightly which results are views, as in `Run`.)"""

    __slots__ = ()

    def execute(self, node: Node, args: Any, kwargs: Any) -> tuple[Any, Held]:
        """As `Run.execute`, with the symbols that the node was traced with.

        Raises
        ------
        InputError: a size that was traced as a symbolic one and is a plain number here.
        """
        from torch._dispatch.python import enable_python_dispatcher
        from torch.fx.experimental.symbolic_shapes import rebind_unbacked

        with enable_python_dispatcher():
            value, held = super().execute(node, args, kwargs)
        if fixed := _fixed(node, value):
            raise InputError(self.source, f"node {node.name}", fixed, "an op that leaves sizes symbolic")
        rebind_unbacked(self.mode.shape_env, node, value)
        return value, held


def _fixed(node: Node, value: Any) -> str:
    """The first size in `value` that is a number although it was traced as a symbolic one, in words."""
    from torch.utils import _pytree as pytree

    traced = pytree.tree_leaves(node.meta.get("val"))
    for before, after in zip(traced, pytree.tree_leaves(value), strict=False):
        for old, new in zip(getattr(before, "shape", ()), getattr(after, "shape", ()), strict=False):
            if isinstance(new, int) and not isinstance(old, int) and not old.node.expr.is_Integer:
                return f"the size {old}, fixed to {new} by torch"
    return ""


def dim_names(env: Any) -> dict[Any, str]:
    """Symbol → the name of the `torch.export.Dim` that it was made for, where torch still knows it."""
    return {
        env.replace(env.source_to_var[source]): name
        for source, name in env.source_name_to_debug_name.items()
        if source in env.source_to_var
    }


def _numbers(tensor: Any) -> Iterator[Any]:
    yield from tensor.shape
    yield from tensor.stride()
    yield tensor.storage_offset()


def _rank(symbol: Any) -> tuple[int, str]:
    """torch's own names in the order of their numbers."""
    digits = str(symbol).lstrip("abcdefghijklmnopqrstuvwxyz")
    return (int(digits) if digits.isdecimal() else 0, str(symbol))


def _low(bound: Any) -> int:
    return int(bound) if bound.is_Integer else 0


def _high(bound: Any) -> int | None:
    return int(bound) if bound.is_Integer and bound < NO_LIMIT else None


def formula_text(expression: Any, names: Mapping[Any, str]) -> str:
    """`expression`, a sympy expression of torch's symbolic shapes, as text; `names` are its symbols' names.

    Raises
    ------
    NoFormulaError: a function that is none of whole numbers (a case distinction, a float power).
    """
    import sympy

    symbols = {symbol: sympy.Symbol(name, integer=True) for symbol, name in names.items()}
    return size_text(plain(expression, symbols))


def plain(expression: Any, symbols: Mapping[Any, Any]) -> Any:
    """`expression` in sympy's own classes: fractions, `floor`, `ceiling`, `Mod`, `Max` and `Min`."""
    import sympy

    if expression.is_Symbol:
        return symbols[expression]
    if expression.is_Float:
        return _fraction(float(expression))
    if expression.is_Integer or expression.is_Rational:
        return sympy.Rational(int(expression.p), int(expression.q))
    arguments = [plain(argument, symbols) for argument in expression.args]
    kind = expression.func.__name__
    if expression.is_Add or expression.is_Mul:
        return expression.func(*arguments)
    if kind in ("Pow", "PowByNatural") and arguments[1].is_Integer and arguments[1] >= 0:
        return arguments[0] ** arguments[1]
    if kind == "Pow" and arguments[1] == -1:
        return 1 / arguments[0]
    if kind not in _meanings():
        raise NoFormulaError(str(expression))
    return _meanings()[kind](*arguments)


@cache
def _meanings() -> dict[str, Callable[..., Any]]:
    """torch's and sympy's functions by name, in sympy's terms. Sizes are never negative, so that cutting off
    is rounding down, and both remainders are one."""
    import sympy

    floor, ceiling = sympy.floor, sympy.ceiling
    return {
        "FloorDiv": lambda a, b: floor(a / b),
        "CleanDiv": lambda a, b: floor(a / b),
        "CeilDiv": lambda a, b: ceiling(a / b),
        "IntTrueDiv": lambda a, b: a / b,
        "FloatTrueDiv": lambda a, b: a / b,
        "ModularIndexing": lambda a, b, c: sympy.Mod(floor(a / b), c),
        "Mod": sympy.Mod,
        "PythonMod": sympy.Mod,
        "FloorToInt": floor,
        "TruncToInt": floor,
        "TruncToFloat": floor,
        "CeilToInt": ceiling,
        "floor": floor,
        "ceiling": ceiling,
        "ToFloat": lambda a: a,
        "Identity": lambda a: a,
        "Max": lambda *several: sympy.Max(*several),
        "Min": lambda *several: sympy.Min(*several),
    }


def _fraction(value: float) -> Any:
    import sympy

    fraction = Fraction(value)
    if fraction.denominator > MOST_DENOMINATOR:
        raise NoFormulaError(f"a product with {value}, rounded in floating point")
    return sympy.Rational(fraction.numerator, fraction.denominator)
