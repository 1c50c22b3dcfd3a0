"""Formulas: text ↔ a checked tree ↔ sympy. Text comes from files, so it is data and never run.

The text holds whole numbers, names, `+ - * / // % **`, brackets, and the functions min, max, floor, ceiling,
Min, Max, Mod, FloorDiv and CeilDiv. Python's parser reads it; only what is listed here passes. `//` and `%`
round down as Python's do, `/` is exact.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES
from memplan_engine.system import parse_python

if TYPE_CHECKING:
    import sympy

MOST_CHARACTERS = 10_000
MOST_DEPTH = 150
MOST_POWER = 16
MOST_BITS = 4096
"""Of any part of a formula when every symbol is just below 2^63: what it costs to work it out is limited."""
NAME_BITS = 63

GRAMMAR = "whole numbers, symbols, + - * / // % **, min, max, floor, ceiling, Mod, FloorDiv and CeilDiv"
FUNCTIONS: dict[str, tuple[str, int]] = {
    "min": ("min", 0),
    "Min": ("min", 0),
    "max": ("max", 0),
    "Max": ("max", 0),
    "floor": ("floor", 1),
    "ceiling": ("ceiling", 1),
    "Mod": ("%", 2),
    "FloorDiv": ("//", 2),
    "CeilDiv": ("ceil/", 2),
    "ceil": ("ceiling", 1),
    "PythonMod": ("%", 2),
    "CleanDiv": ("//", 2),
    "IntTrueDiv": ("/", 2),
    "CeilToInt": ("ceiling", 1),
    "FloorToInt": ("floor", 1),
    "TruncToInt": ("floor", 1),
}
"""Name in the text → operation, and how many arguments (0: one or more). The last ones are torch's, in the
names that its ONNX exporter gives to dimensions; no size is negative."""
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
Number = int | Fraction


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a formula: "number" with `value`, "symbol" with `name`, else `kind` of `parts`."""

    kind: str
    parts: tuple[Node, ...] = ()
    value: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Formula:
    """A checked formula: its text, its tree and the names of its symbols. Two of one text are equal."""

    text: str
    root: Node = field(compare=False, repr=False)
    names: frozenset[str] = field(compare=False, repr=False)

    def at(self, values: Mapping[str, int]) -> Number:
        """The exact value; a Fraction where it is not whole.

        Raises
        ------
        ZeroDivisionError: something is divided by zero at these values.
        """
        return _value(self.root, values)


class _BadFormulaError(Exception):
    """What was found, for the message."""


def parse(
    text: str, names: Mapping[str, Any] | None = None, source: str = "formula", place: str = ""
) -> Formula:
    """Read `text`; with `names`, every symbol must be one of them.

    Raises
    ------
    InputError: naming `source` and `place`: text that is no formula, is too long, too deep or too large, or
        has a symbol that is not in `names`.
    """
    try:
        formula = _parse(text)
    except _BadFormulaError as error:
        raise InputError(source, place, f"the formula {_short(text)} with {error}", GRAMMAR) from None
    unknown = sorted(formula.names.difference(names)) if names is not None else []
    if unknown:
        expected = f"one of {', '.join(names or ())}" if names else "no symbols, as the graph has none"
        raise InputError(source, place, f"the symbol {unknown[0]!r} in {_short(text)}", expected)
    return formula


def to_sympy(formula: Formula, symbols: Mapping[str, sympy.Symbol] | None = None) -> sympy.Expr:
    """`formula` in sympy's terms; `symbols` as `values.sympy_symbols` makes them, plain integers if None.

    Raises
    ------
    InputError: a division by what is always zero.
    """
    import sympy

    by_name = {name: sympy.Symbol(name, integer=True) for name in formula.names} | dict(symbols or {})
    expression = _sympy(formula.root, by_name)
    if expression.has(sympy.zoo, sympy.nan, sympy.oo):
        raise InputError("formula", formula.text, "a division by zero", "divisors other than zero")
    return expression


def to_text(expression: Any) -> str:
    """A sympy expression as text that `parse` reads back to the same values: floors as `//`, ceilings as the
    floors that they are, remainders as `%`.

    Raises
    ------
    InputError: a function, a power or a number that formulas of whole numbers do not have.
    """
    try:
        text = str(_printer().doprint(expression))
    except _BadFormulaError as error:
        expected = "a formula of whole numbers, + - * / // % **, min and max"
        raise InputError("formula", "", f"{error} in {expression}", expected) from None
    # The printers of floors put brackets around themselves, which a whole formula does not need.
    return text[1:-1] if _is_one_bracket(text) else text


@lru_cache(maxsize=4096)
def _parse(text: str) -> Formula:
    if len(text) > MOST_CHARACTERS:
        raise _BadFormulaError(f"{len(text)} characters (at most {MOST_CHARACTERS} are read)")
    try:
        tree = parse_python(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _BadFormulaError("a part that cannot be read") from None
    names: set[str] = set()
    root, _ = _checked(tree.body, names, 0)
    return Formula(text, root, frozenset(names))


def _checked(tree: ast.expr, names: set[str], depth: int) -> tuple[Node, int]:
    """The node for `tree`, and how many bits its value has at most."""
    if depth > MOST_DEPTH:
        raise _BadFormulaError(f"more than {MOST_DEPTH} levels")
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            if value > MAX_BYTES:
                raise _BadFormulaError("a number above 2^63-1")
            return Node("number", value=value), max(1, value.bit_length())
        case ast.Name(id=name):
            names.add(name)
            return Node("symbol", name=name), NAME_BITS
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            part, bits = _checked(operand, names, depth + 1)
            return Node("-", (Node("number"), part)), bits
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _operation(OPERATORS[type(op)], (left, right), names, depth)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            kind, count = FUNCTIONS[name]
            if len(args) != count if count else not args:
                raise _BadFormulaError(f"{name} of {len(args)} arguments")
            return _operation(kind, tuple(args), names, depth)
        case ast.Call(func=ast.Name(id=name)):
            raise _BadFormulaError(f"the function {name!r}")
    raise _BadFormulaError(f"{_short(ast.unparse(tree))}, which is none of these")


def _operation(kind: str, trees: tuple[ast.expr, ...], names: set[str], depth: int) -> tuple[Node, int]:
    parts, bits = zip(*(_checked(tree, names, depth + 1) for tree in trees), strict=True)
    if kind == "**":
        power = parts[1]
        if power.kind != "number" or power.value > MOST_POWER:
            raise _BadFormulaError(f"a power that is not a number from 0 to {MOST_POWER}")
        size = bits[0] * max(1, power.value)
    elif kind in ("//", "%", "/", "ceil/") and parts[1] == Node("number"):
        raise _BadFormulaError("a division by zero")
    else:
        size = sum(bits) if kind in ("*", "/") else max(bits) + 1
    if size > MOST_BITS:
        raise _BadFormulaError(f"a part that may have {size} bits (at most {MOST_BITS})")
    return Node(kind, parts), size


_ACTIONS: dict[str, Callable[..., Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: Fraction(a) / b,
    "//": lambda a, b: a // b,
    "ceil/": lambda a, b: -(-a // b),
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "min": lambda *parts: min(parts),
    "max": lambda *parts: max(parts),
    "floor": lambda a: a // 1,
    "ceiling": lambda a: -(-a // 1),
}


def _value(node: Node, values: Mapping[str, int]) -> Number:
    if node.kind == "symbol":
        return values[node.name]
    if node.kind == "number":
        return node.value
    value = _ACTIONS[node.kind](*[_value(part, values) for part in node.parts])
    return value.numerator if value.denominator == 1 else value


def _sympy(node: Node, symbols: Mapping[str, sympy.Symbol]) -> Any:
    import sympy

    if node.kind == "symbol":
        return symbols[node.name]
    if node.kind == "number":
        return sympy.Integer(node.value)
    parts = [_sympy(part, symbols) for part in node.parts]
    actions: dict[str, Callable[..., Any]] = {
        "+": sympy.Add,
        "-": lambda a, b: a - b,
        "*": sympy.Mul,
        "/": lambda a, b: a / b,
        "//": lambda a, b: sympy.floor(a / b),
        "ceil/": lambda a, b: sympy.ceiling(a / b),
        "%": sympy.Mod,
        "**": sympy.Pow,
        "min": sympy.Min,
        "max": sympy.Max,
        "floor": sympy.floor,
        "ceiling": sympy.ceiling,
    }
    return actions[node.kind](*parts)


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")


def _is_one_bracket(text: str) -> bool:
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return index > 0 and index == len(text) - 1
    return False


@cache
def _printer() -> Any:
    import sympy
    from sympy.printing.precedence import PRECEDENCE
    from sympy.printing.str import StrPrinter

    class Printer(StrPrinter):  # type: ignore[misc]
        """Each method is called by sympy for the class in its name."""

        def _bracket(self, expression: Any) -> str:
            text = str(self._print(expression))
            return (
                text if expression.is_Symbol or (expression.is_Integer and expression >= 0) else f"({text})"
            )

        def _print_floor(self, expression: Any) -> str:
            over, under = sympy.together(expression.args[0]).as_numer_denom()
            return f"({self._bracket(over)}//{self._bracket(under)})"

        def _print_ceiling(self, expression: Any) -> str:
            over, under = sympy.together(expression.args[0]).as_numer_denom()
            if under.is_Integer and under > 0:
                return f"({self._bracket(over + under - 1)}//{self._bracket(under)})"
            return f"(-({self._bracket(-over)}//{self._bracket(under)}))"

        def _print_Mod(self, expression: Any) -> str:  # noqa: N802
            one, other = expression.args
            return f"({self._bracket(one)} % {self._bracket(other)})"

        def _print_Max(self, expression: Any) -> str:  # noqa: N802
            parts = sorted(str(self._print(part)) for part in expression.args)
            return f"{expression.func.__name__.lower()}({', '.join(parts)})"

        _print_Min = _print_Max  # noqa: N815

        def _print_Pow(self, expression: Any, rational: bool = False) -> str:  # noqa: N802
            base, power = expression.args
            if not power.is_Integer:
                raise _BadFormulaError("a power that is not a number")
            text = self.parenthesize(base, PRECEDENCE["Pow"], strict=False)
            if power < 0:
                return f"1/({text}**{-power})" if power != -1 else f"1/{text}"
            return f"{text}**{power}"

        def _print_Function(self, expression: Any) -> str:  # noqa: N802
            raise _BadFormulaError(f"the function {expression.func.__name__!r}")

        def _refuse(self, expression: Any) -> str:
            raise _BadFormulaError(f"a {type(expression).__name__}")

        _print_Float = _print_Infinity = _print_NegativeInfinity = _print_ComplexInfinity = _refuse  # noqa: N815
        _print_NaN = _print_ImaginaryUnit = _print_Pi = _print_Exp1 = _print_Piecewise = _refuse  # noqa: N815
        _print_Relational = _print_BooleanTrue = _print_BooleanFalse = emptyPrinter = _refuse  # noqa: N815

    return Printer({"order": None})
