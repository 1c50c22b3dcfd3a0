"""Does a formula grow with a symbol? Proved over whole ranges, or not claimed at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from memplan_engine.graph import Symbol
from memplan_engine.symbolic.expression import Formula, Node

Bound = int | Fraction | float
"""Exact, or an infinity."""


class Trend(StrEnum):
    """What a formula does as one symbol grows and the others stay: UP and DOWN allow for standing still."""

    CONSTANT = "constant"
    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


FLIPPED = {Trend.UP: Trend.DOWN, Trend.DOWN: Trend.UP}


@dataclass(frozen=True, slots=True)
class Span:
    """All that is known of a part: its values lie in `[low, high]`, and it follows `trend`."""

    low: Bound
    high: Bound
    trend: Trend


ANYTHING = Span(-math.inf, math.inf, Trend.UNKNOWN)


def trend(formula: Formula, name: str, symbols: Sequence[Symbol]) -> Trend:
    """The trend of `formula` in the symbol `name` over the ranges of `symbols`, without limit where none is
    known.

    A structural proof: sums, products, quotients, roundings, minima and maxima of parts whose trends and
    signs are known. Polynomials of which that says nothing (`n*n - n`) are proved by their forward
    difference, when in terms of `symbol − low` all its coefficients have one sign. UNKNOWN claims nothing.
    """
    ranges = {symbol.name: symbol for symbol in symbols}
    return _span(formula.root, name, ranges).trend


def _span(node: Node, name: str, ranges: Mapping[str, Symbol]) -> Span:
    if node.kind == "number":
        return Span(node.value, node.value, Trend.CONSTANT)
    if node.kind == "symbol":
        symbol = ranges[node.name]
        high = math.inf if symbol.high is None else symbol.high
        return Span(symbol.low, high, Trend.UP if node.name == name else Trend.CONSTANT)
    span = _RULES[node.kind](*[_span(part, name, ranges) for part in node.parts])
    if span.trend is Trend.UNKNOWN:
        return Span(span.low, span.high, polynomial_trend(node, name, ranges))
    return span


def _joint(left: Trend, right: Trend) -> Trend:
    """The trend of what follows both."""
    if Trend.CONSTANT in (left, right):
        return right if left is Trend.CONSTANT else left
    return left if left is right else Trend.UNKNOWN


def _endless(value: Bound) -> bool:
    # Not by math.isinf: an exact number may be too large to become a float.
    return value == math.inf or value == -math.inf


def _times(a: Bound, b: Bound) -> Bound:
    if a == 0 or b == 0:
        return 0
    if _endless(a) or _endless(b):
        return math.inf if (a > 0) is (b > 0) else -math.inf
    return a * b


def _plus(a: Bound, b: Bound) -> Bound:
    return a if _endless(a) else b if _endless(b) else a + b


def _add(a: Span, b: Span) -> Span:
    return Span(_plus(a.low, b.low), _plus(a.high, b.high), _joint(a.trend, b.trend))


def _subtract(a: Span, b: Span) -> Span:
    return _add(a, Span(-b.high, -b.low, FLIPPED.get(b.trend, b.trend)))


def _signed(part: Span, by: Span) -> Trend:
    """The trend of `part` times something of `by`'s sign that stands still."""
    if part.trend is Trend.CONSTANT or by.low >= 0:
        return part.trend
    return FLIPPED.get(part.trend, part.trend) if by.high <= 0 else Trend.UNKNOWN


def _multiply(a: Span, b: Span) -> Span:
    ends = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Span(min(ends), max(ends), _joint(_signed(a, b), _signed(b, a)))


def _divide(a: Span, b: Span) -> Span:
    if not (b.low > 0 or b.high < 0):
        return ANYTHING
    return _multiply(a, Span(_inverse(b.high), _inverse(b.low), FLIPPED.get(b.trend, b.trend)))


def _inverse(value: Bound) -> Bound:
    return 0 if _endless(value) else Fraction(1) / Fraction(value)


def _rounded(a: Span, rounding: Callable[[Bound], int]) -> Span:
    low, high = (value if _endless(value) else rounding(value) for value in (a.low, a.high))
    return Span(low, high, a.trend)


def _remainder(a: Span, b: Span) -> Span:
    still = a.trend is b.trend is Trend.CONSTANT
    if b.low <= 0:
        return Span(-math.inf, math.inf, Trend.CONSTANT if still else Trend.UNKNOWN)
    # A remainder is below its divisor, and of numbers not below 0 no more than they are.
    high = min(b.high, a.high) if a.low >= 0 else b.high
    return Span(0, high, Trend.CONSTANT if still else Trend.UNKNOWN)


def _power(a: Span, b: Span) -> Span:
    power = int(b.low)
    result = Span(1, 1, Trend.CONSTANT)
    for _ in range(power):
        result = _multiply(result, a)
    if power % 2 and result.trend is Trend.UNKNOWN and a.trend is not Trend.UNKNOWN:
        return Span(result.low, result.high, a.trend)
    return result


def _extreme(parts: Sequence[Span], pick: Callable[[list[Bound]], Bound]) -> Span:
    following = Trend.CONSTANT
    for part in parts:
        following = _joint(following, part.trend)
    return Span(pick([part.low for part in parts]), pick([part.high for part in parts]), following)


_RULES: dict[str, Callable[..., Span]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "//": lambda a, b: _rounded(_divide(a, b), math.floor),
    "ceil/": lambda a, b: _rounded(_divide(a, b), math.ceil),
    "%": _remainder,
    "**": _power,
    "min": lambda *parts: _extreme(parts, min),
    "max": lambda *parts: _extreme(parts, max),
    "floor": lambda a: _rounded(a, math.floor),
    "ceiling": lambda a: _rounded(a, math.ceil),
}


Monomial = tuple[tuple[str, int], ...]
"""Names with their powers, by name."""
Polynomial = dict[Monomial, Fraction]
MOST_TERMS = 200


def polynomial_trend(node: Node, name: str, ranges: Mapping[str, Symbol]) -> Trend:
    """The trend of `node` where it is a polynomial whose forward difference in `name` has coefficients of one
    sign, with every symbol counted from its smallest value."""
    shifted: dict[str, Polynomial] = {
        symbol.name: _sum({((symbol.name, 1),): Fraction(1)}, {(): Fraction(symbol.low)})
        for symbol in ranges.values()
    }
    here = _polynomial(node, shifted)
    after = _polynomial(node, {**shifted, name: _sum(shifted[name], {(): Fraction(1)})})
    if here is None or after is None:
        return Trend.UNKNOWN
    signs = {value > 0 for value in _sum(after, here, -1).values()}
    if len(signs) == 2:
        return Trend.UNKNOWN
    return (Trend.UP if signs.pop() else Trend.DOWN) if signs else Trend.CONSTANT


def _polynomial(node: Node, symbols: Mapping[str, Polynomial]) -> Polynomial | None:
    """The terms of `node`, None where it is no polynomial or has too many of them."""
    if node.kind == "symbol":
        return symbols[node.name]
    if node.kind == "number":
        return _sum({(): Fraction(node.value)})
    if node.kind not in ("+", "-", "*", "**"):
        return None
    parts = [_polynomial(part, symbols) for part in node.parts]
    one, other = parts
    if one is None or other is None:
        return None
    if node.kind in ("+", "-"):
        return _sum(one, other, 1 if node.kind == "+" else -1)
    if node.kind == "*":
        return _product(one, other)
    result: Polynomial | None = {(): Fraction(1)}
    for _ in range(node.parts[1].value):
        result = None if result is None else _product(result, one)
    return result


def _sum(left: Polynomial, right: Polynomial | None = None, factor: int = 1) -> Polynomial:
    terms = dict(left)
    for monomial, value in (right or {}).items():
        terms[monomial] = terms.get(monomial, Fraction(0)) + factor * value
    return {monomial: value for monomial, value in terms.items() if value}


def _product(one: Polynomial, other: Polynomial) -> Polynomial | None:
    if len(one) * len(other) > MOST_TERMS:
        return None
    terms: Polynomial = {}
    for left, first in one.items():
        for right, second in other.items():
            powers = dict(left)
            for name, power in right:
                powers[name] = powers.get(name, 0) + power
            monomial = tuple(sorted(powers.items()))
            terms[monomial] = terms.get(monomial, Fraction(0)) + first * second
    return {monomial: value for monomial, value in terms.items() if value}
