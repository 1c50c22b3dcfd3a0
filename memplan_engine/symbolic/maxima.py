"""Symbolic maxima: what can never be the largest is left out, so that people can read what remains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memplan_engine.graph import Symbol
from memplan_engine.symbolic.expression import to_sympy
from memplan_engine.symbolic.symbol_values import sympy_symbols
from memplan_engine.symbolic.symbolic_problem import SymbolicProblem

if TYPE_CHECKING:
    import sympy

MOST_COMPARED = 60
"""Of more different expressions each is kept: comparing all pairs would take too long."""
MOST_TERMS = 500
"""Of an expression that is multiplied out."""


def symbolic_max(expressions: Iterable[sympy.Expr], symbols: Sequence[Symbol]) -> sympy.Expr:
    """The maximum of `expressions`, which are sizes and so never negative, over the ranges of `symbols`; 0 of
    none.

    An expression is left out when another one is a multiple of it, or minus it is a sum of terms none of
    which is negative, with the symbols counted from their smallest values. What these proofs do not reach
    stays.
    """
    import sympy

    distinct = sorted(dict.fromkeys(expressions), key=sympy.default_sort_key)
    if len(distinct) > MOST_COMPARED:
        return sympy.Max(*distinct, evaluate=False)
    terms = [(_unit(expression), _terms(expression, symbols)) for expression in distinct]
    kept: list[int] = []
    for place in range(len(distinct)):
        if any(_covers(*terms[other], *terms[place]) for other in kept):
            continue
        kept = [other for other in kept if not _covers(*terms[place], *terms[other])] + [place]
    # Not evaluated: sympy would ask of every pair once more which is larger, which takes seconds.
    remaining = [distinct[place] for place in kept]
    return sympy.Max(*remaining, evaluate=False) if len(remaining) > 1 else sympy.Add(*remaining)


def symbolic_peak(problem: SymbolicProblem) -> sympy.Expr:
    """The largest sum of sizes that are alive together, in bytes: the lower bound LOAD as a formula."""
    import sympy

    symbols = sympy_symbols(problem.graph.symbols)
    sizes = [_unit(to_sympy(formula, symbols)) for formula in problem.formulas]
    loads: list[dict[Any, Any]] = []
    for alive in distinct_loads(problem):
        load: dict[Any, Any] = {}
        for formula, count in alive.items():
            factor, unit = sizes[formula]
            load[unit] = load.get(unit, 0) + count * factor
        loads.append(load)
    kept = [load for load in loads if not any(_holds(other, load) for other in loads)]
    sums = (sympy.Add(*(factor * unit for unit, factor in load.items())) for load in kept)
    return symbolic_max(sums, problem.graph.symbols)


def _unit(size: Any) -> tuple[Any, Any]:
    """`size` as a positive number times something that, as the size itself, is never negative."""
    factor, unit = size.as_coeff_Mul()
    return (factor, unit) if factor > 0 else (1, size)


def _holds(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    """Whether `one` has at least as much of everything as `other`, and is not the same."""
    return one != other and all(factor <= one.get(unit, 0) for unit, factor in other.items())


def distinct_loads(problem: SymbolicProblem) -> list[Counter[int]]:
    """What is alive together, as counts of formulas: a step each, without those that another one holds."""
    frame = problem.frame
    loads: dict[bytes, None] = {}
    for start in np.unique(frame.start):
        alive = (frame.start <= start) & (start < frame.end)
        counts = np.bincount(problem.which[alive], minlength=len(problem.formulas))
        loads[counts.tobytes()] = None
    rows = [np.frombuffer(row, dtype=np.int64) for row in loads]
    kept: list[Any] = []
    for row in sorted(rows, key=lambda row: -int(row.sum())):
        if not any((other >= row).all() for other in kept):
            kept.append(row)
    return [Counter({int(i): int(row[i]) for i in np.flatnonzero(row)}) for row in kept]


def _terms(expression: Any, symbols: Sequence[Symbol]) -> dict[Any, Any]:
    """Monomial → coefficient of `expression`, in terms of how far each symbol is above its smallest value."""
    import sympy

    known = sympy_symbols(symbols)
    above = {
        known[symbol.name]: symbol.low + sympy.Symbol(symbol.name, integer=True, nonnegative=True)
        for symbol in symbols
    }
    return dict(_expanded(expression.xreplace(above)).as_coefficients_dict())


def _expanded(expression: Any) -> Any:
    """`expression` multiplied out, unless that gives so many terms that it would take long."""
    return expression.expand() if _most_terms(expression) <= MOST_TERMS else expression


def _most_terms(expression: Any) -> int:
    """How many terms `expression` has at most when it is multiplied out."""
    if expression.is_Add:
        return sum(_most_terms(part) for part in expression.args)
    if expression.is_Mul:
        return math.prod(_most_terms(part) for part in expression.args)
    if expression.is_Pow and expression.exp.is_Integer:
        terms, power = _most_terms(expression.base), abs(int(expression.exp))
        return math.comb(terms + power - 1, power)
    # What is inside a rounding or a maximum is multiplied out, too, but stays in one term.
    inside = max((_most_terms(part) for part in expression.args), default=1)
    return inside if inside > MOST_TERMS else 1


def _covers(
    one: tuple[Any, Any], one_terms: dict[Any, Any], other: tuple[Any, Any], other_terms: dict[Any, Any]
) -> bool:
    """Whether the first expression is proved never to be below the other."""
    if one[1] == other[1] and one[0] >= other[0]:
        return True
    terms = {**one_terms, **other_terms}
    differences = {term: one_terms.get(term, 0) - other_terms.get(term, 0) for term in terms}
    return all(value == 0 or (value > 0 and bool(term.is_nonnegative)) for term, value in differences.items())
