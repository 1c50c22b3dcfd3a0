"""A size that an importer found, a sympy expression → the shortest text for it: "4*batch*(seq//2 + 2)"."""

from __future__ import annotations

import keyword
import math
import re
from functools import lru_cache
from typing import Any

from memplan_engine.errors import InputError

MOST_TERMS = 64
"""Larger expressions are left as they are: they may come from files."""
FUNCTIONS = ("min", "max", "floor", "ceiling", "Min", "Max", "Mod", "FloorDiv", "CeilDiv")
KEYWORDS = frozenset({*keyword.kwlist, *FUNCTIONS})
"""What a symbol cannot be called."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_symbol_name(text: str) -> bool:
    """Whether a symbol can be called so in formulas."""
    return NAME.fullmatch(text) is not None and text not in KEYWORDS


class NoFormulaError(Exception):
    """An expression that the text has no words for; the message is that part of it."""


@lru_cache(maxsize=4096)
def size_text(expression: Any) -> str:
    """`expression` as text, in its shortest form.

    Raises
    ------
    NoFormulaError: a function that is none of whole numbers.
    """
    from memplan_engine.symbolic.expression import to_text

    try:
        return to_text(whole(_shortest(expression)))
    except InputError as error:
        raise NoFormulaError(error.found) from error


def _shortest(expression: Any) -> Any:
    """`expression` as it is, multiplied out or factored, whichever has the fewest operations: torch keeps the
    size of a broadcast tensor as what its last element needs, `seq*(batch - 1) + seq`."""
    import sympy

    if _terms(expression) > MOST_TERMS:
        return expression
    forms = (sympy.expand(expression), sympy.factor(expression), expression)
    return min(forms, key=lambda form: (sympy.count_ops(form), len(str(form))))


def _terms(expression: Any) -> int:
    """How many terms `expression`, or what is inside a function in it, has when multiplied out, and at least
    its largest exponent: what multiplying out and factoring cost."""
    parts = [_terms(argument) for argument in expression.args]
    if expression.is_Add:
        return sum(parts)
    if expression.is_Mul:
        return math.prod(parts)
    if expression.is_Pow:
        exponent = expression.exp
        small = exponent.is_Integer and abs(exponent) <= MOST_TERMS and parts[0] <= MOST_TERMS
        return max(parts[0] ** abs(int(exponent)), abs(int(exponent))) if small else MOST_TERMS + 1
    return max((part for part in parts if part > MOST_TERMS), default=1)


def whole(expression: Any) -> Any:
    """`expression` as one division of whole numbers where it has fractions in it: its value is whole, if
    not that of its parts."""
    import sympy

    over, under = sympy.together(expression).as_numer_denom()
    return expression if under == 1 else sympy.floor(over / under, evaluate=False)
