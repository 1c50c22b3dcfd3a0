"""Values of symbols: checked, and chosen from their ranges."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph, Symbol

if TYPE_CHECKING:
    import sympy

HINT_MULTIPLE = 16
"""A symbol without a known limit is looked at up to this many times its hint."""
MOST_CORNERS = 64

Values = dict[str, int]


def check_values(
    symbols: Sequence[Symbol], values: Mapping[str, int] | None = None, source: str = "symbols"
) -> Values:
    """A value for every symbol, in their order: those of `values`, hints for the rest.

    Raises
    ------
    InputError: an unknown symbol, a value that is no whole number or is out of range, a symbol with
        neither value nor hint.
    """
    given: Values = {}
    named = _by_name(symbols) if values else {}
    for name, asked in (values or {}).items():
        symbol = named.get(name)
        if symbol is None:
            names = ", ".join(map(str, symbols))
            expected = f"one of {names}" if names else "no values, as the graph has no symbols"
            raise InputError(source, f"symbol {name!r}", "an unknown symbol", expected)
        if given.setdefault(symbol.name, asked) != asked:
            both = f"{given[symbol.name]} and {asked}"
            raise InputError(source, f"symbol {name!r}", both, "one value for a symbol")
    checked: Values = {}
    for symbol in symbols:
        value = given.get(symbol.name, symbol.hint)
        place = f"symbol {symbol.name!r}"
        if value is None:
            expected = "a value for it: its size depends on the data"
            raise InputError(source, place, "neither a value nor a hint", expected)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(source, place, repr(value), "a whole number")
        if not symbol.low <= value <= (MAX_BYTES if symbol.high is None else symbol.high):
            limit = "or more" if symbol.high is None else f"to {symbol.high}"
            raise InputError(source, place, str(value), f"{symbol.low} {limit}")
        checked[symbol.name] = value
    return checked


def symbol_named(graph: Graph, name: str) -> Symbol:
    """The symbol of `graph` called `name`; raises InputError with the names that exist."""
    symbol = _by_name(graph.symbols).get(name)
    if symbol is not None:
        return symbol
    names = ", ".join(map(str, graph.symbols))
    expected = f"one of {names}" if names else "a graph with symbols"
    raise InputError(graph.name, f"symbol {name!r}", "an unknown symbol", expected)


def _by_name(symbols: Sequence[Symbol]) -> dict[str, Symbol]:
    """The symbols by what they are called, here or else in the file that they come from."""
    called = {symbol.called: symbol for symbol in reversed(symbols) if symbol.called}
    return {**called, **{symbol.name: symbol for symbol in symbols}}


def ends(symbol: Symbol) -> tuple[int, int]:
    """The smallest and the largest value that is looked at. Without a known limit the largest is
    HINT_MULTIPLE times the hint (or the smallest value, or 1: the largest of the three)."""
    if symbol.high is not None:
        return symbol.low, symbol.high
    return symbol.low, min(MAX_BYTES, HINT_MULTIPLE * max(symbol.low, symbol.hint or 0, 1))


def upper_corner(symbols: Sequence[Symbol]) -> Values:
    """Every symbol at its largest value."""
    return {symbol.name: ends(symbol)[1] for symbol in symbols}


def corners(symbols: Sequence[Symbol]) -> list[Values]:
    """All corners of the box of ranges; of more than 6 symbols the lowest and the highest corner and those
    that differ from them in one symbol."""
    names = [symbol.name for symbol in symbols]
    spans = [ends(symbol) for symbol in symbols]
    if 2 ** len(symbols) <= MOST_CORNERS:
        points = list(product(*(dict.fromkeys(span) for span in spans)))
    else:
        low, high = tuple(span[0] for span in spans), tuple(span[1] for span in spans)
        points = [low, high]
        for place in range(len(spans)):
            points.append((*low[:place], high[place], *low[place + 1 :]))
            points.append((*high[:place], low[place], *high[place + 1 :]))
    return [dict(zip(names, point, strict=True)) for point in dict.fromkeys(points)]


def samples(symbols: Sequence[Symbol], count: int, seed: int = 0) -> list[Values]:
    """`count` points of the box of ranges, the same for one seed: every other one even over the range, the
    others even over the number of digits, so that small values have their share."""
    generator = random.Random(seed)
    spans = {symbol.name: ends(symbol) for symbol in symbols}
    drawn = []
    for turn in range(count):
        point = {}
        for name, (low, high) in spans.items():
            if turn % 2 == 0:
                point[name] = generator.randint(low, high)
            else:
                top = min(high, low + 2 ** generator.randint(0, (high - low).bit_length()))
                point[name] = generator.randint(low, top)
        drawn.append(point)
    return drawn


def steps_between(low: int, high: int, count: int) -> list[int]:
    """At most `count` whole numbers from `low` to `high`, both among them, about evenly spaced by ratio; all
    of them where there are no more. Of one it is `high`."""
    if count == 1:
        return [high]
    if high - low < count:
        return list(range(low, high + 1))
    ratio = (max(high, 1) / max(low, 1)) ** (1 / (count - 1))
    return sorted({low, high} | {min(high, max(low, round(max(low, 1) * ratio**i))) for i in range(count)})


def sympy_symbols(symbols: Sequence[Symbol]) -> dict[str, sympy.Symbol]:
    """sympy's symbols by name, with what is known about them: whole, and positive or not negative."""
    import sympy

    return {
        symbol.name: sympy.Symbol(symbol.name, integer=True, positive=True)
        if symbol.low > 0
        else sympy.Symbol(symbol.name, integer=True, nonnegative=True)
        for symbol in symbols
    }


def in_words(values: Mapping[str, int]) -> str:
    """ "batch=8, seq=128"."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
