"""A symbolic size of torch's → text. torch has functions of its own for division, remainders and rounding;
each is put into whole numbers, and exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from memplan_engine.formats.formula_text import NoFormulaError, size_text

MOST_DENOMINATOR = 2**20
"""Of a scale factor, which torch has as a float: 2.5 is exactly 5/2, but 0.7 is no fraction of small
numbers, and what it gives depends on how floats are rounded (0.7 * 170 is a little less than 119)."""


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
