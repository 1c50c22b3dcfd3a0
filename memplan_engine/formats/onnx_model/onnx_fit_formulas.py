"""Formulas for the sizes of an ONNX model, found from its shapes at several values of its symbols.

ONNX's own inference names a dimension only where it is handed through. Here every size is known as a number
at each of some points (values of all symbols), and a formula is looked for that gives these numbers: a
constant, a size that was met before, one that the operator makes of its inputs' sizes (scaled, shifted,
divided and rounded as convolutions and poolings do, multiplied, added). What matches at all points, which are
many more than a formula has coefficients, is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import combinations
from typing import Any

Numbers = tuple[int, ...]
"""One size at every point."""
LARGEST_DIVISOR = 8
"""Of divisions that no attribute of the operator tells."""
MOST_FACTORS = 5


@dataclass(frozen=True, slots=True)
class Known:
    """A size at every point, and its formula."""

    numbers: Numbers
    formula: Any


@dataclass(frozen=True, slots=True)
class Window:
    """A window that an operator slides along an axis: the size `(n + extra) // stride + 1`."""

    stride: int
    extra: int


@dataclass(slots=True)
class FormulaFit:
    """Formulas of one model by what they are at the points."""

    symbols: tuple[Known, ...]
    found: dict[Numbers, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.found.update((symbol.numbers, symbol.formula) for symbol in self.symbols)

    def shape(
        self, shape: Sequence[Numbers], inputs: Sequence[Sequence[Known]], windows: Mapping[int, Window]
    ) -> list[Any] | None:
        """A formula for each size in `shape`, an output's, made from the shapes of its operator's inputs;
        None where there is none for one of them."""
        formulas = [
            self.size(numbers, inputs, windows.get(axis - len(shape))) for axis, numbers in enumerate(shape)
        ]
        open_axes = [axis for axis, formula in enumerate(formulas) if formula is None]
        if len(open_axes) == 1:
            formulas[open_axes[0]] = self._rest(shape, formulas, open_axes[0], inputs)
        if any(formula is None for formula in formulas):
            return None
        for numbers, formula in zip(shape, formulas, strict=True):
            self.found.setdefault(numbers, formula)
        return formulas

    def size(
        self, numbers: Numbers, inputs: Sequence[Sequence[Known]] = (), window: Window | None = None
    ) -> Any:
        """A formula that is `numbers`, or None."""
        import sympy

        if len(set(numbers)) == 1:
            return sympy.Integer(numbers[0])
        if window is not None:
            for known in _distinct(inputs):
                if all(slid(n, window) == out for n, out in zip(known.numbers, numbers, strict=True)):
                    return slid(known.formula, window)
        if numbers in self.found:
            return self.found[numbers]
        bases = _distinct([*inputs, self.symbols])
        candidates = (made for known in bases if (made := scaled(known, numbers)) is not None)
        several = (made for known in _combined(inputs) if (made := multiple(known, numbers)) is not None)
        return next(candidates, None) or next(several, None)

    def _rest(
        self, shape: Sequence[Numbers], formulas: Sequence[Any], axis: int, inputs: Sequence[Sequence[Known]]
    ) -> Any:
        """The size that is left when all others are known, where elements are only put in another order."""
        import sympy

        elements = _product(shape, len(self.symbols[0].numbers))
        for known in inputs:
            if known and _product([size.numbers for size in known], len(elements)) == elements:
                whole = sympy.prod([size.formula for size in known])
                others = sympy.prod([formula for place, formula in enumerate(formulas) if place != axis])
                rest = sympy.cancel(whole / others)
                return rest if rest.is_polynomial() else sympy.floor(rest)
        return None


def slid(size: Any, window: Window) -> Any:
    """How often `window` fits into `size`, a number or a formula."""
    return (size + window.extra) // window.stride + 1


def scaled(known: Known, numbers: Numbers) -> Any:
    """`(known * up + shift) // down` where that is `numbers` for one choice of whole numbers only; the
    smallest `down` is taken."""
    import sympy

    pairs = list(zip(known.numbers, numbers, strict=True))
    (least, low), (most, high) = min(pairs), max(pairs)
    if least == most:
        return None
    slope = Fraction(high - low, most - least)
    for down in range(1, LARGEST_DIVISOR + 1):
        up = round(slope * down)
        first = max(out * down - n * up for n, out in pairs)
        last = min(out * down - n * up + down - 1 for n, out in pairs)
        if up and first <= last and (first == last or first <= 0 <= last):
            return sympy.floor((known.formula * up + (first if first == last else 0)) / down)
    return None


def multiple(known: Known, numbers: Numbers) -> Any:
    """`known * a / b + c` where that is `numbers` exactly at all points."""
    import sympy

    pairs = sorted(set(zip(known.numbers, numbers, strict=True)))
    (least, low), (most, high) = pairs[0], pairs[-1]
    if least == most:
        return None
    ratio = Fraction(high - low, most - least)
    shift = low - least * ratio
    if ratio <= 0 or any(n * ratio + shift != out for n, out in pairs):
        return None
    rational = [sympy.Rational(part.numerator, part.denominator) for part in (ratio, shift)]
    return known.formula * rational[0] + rational[1]


def _combined(inputs: Sequence[Sequence[Known]]) -> Iterator[Known]:
    """Products of sizes of one input, sums of all inputs' sizes along an axis, and products of two sizes."""
    for shape in inputs:
        moving = [known for known in shape if len(set(known.numbers)) > 1]
        for count in range(2, min(len(moving), MOST_FACTORS) + 1):
            for chosen in combinations(moving, count):
                yield Known(
                    _product([known.numbers for known in chosen], len(chosen[0].numbers)),
                    math.prod(known.formula for known in chosen),
                )
    for along in zip(*inputs, strict=False):
        yield Known(
            tuple(map(sum, zip(*(known.numbers for known in along), strict=True))),
            sum(known.formula for known in along),
        )
    for one, other in combinations(_distinct(inputs), 2):
        pairs = list(zip(one.numbers, other.numbers, strict=True))
        yield Known(tuple(a * b for a, b in pairs), one.formula * other.formula)
        yield Known(tuple(a + b for a, b in pairs), one.formula + other.formula)
        yield Known(tuple(a - b for a, b in pairs), one.formula - other.formula)


def _distinct(shapes: Iterable[Sequence[Known]]) -> list[Known]:
    """The sizes that are not the same at all points, each once."""
    found = {known.numbers: known for shape in shapes for known in shape if len(set(known.numbers)) > 1}
    return list(found.values())


def _product(shape: Sequence[Numbers], points: int) -> Numbers:
    return reduce(lambda a, b: tuple(m * n for m, n in zip(a, b, strict=True)), shape, (1,) * points)
