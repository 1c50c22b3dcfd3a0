"""The symbols of a program with dynamic shapes: which numbers they have in a call, and whether they may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from memplan_engine.errors import InputError


@dataclass(frozen=True, slots=True)
class Symbols:
    """`ranges` has the least and the greatest value of each symbol (of sympy), both included."""

    ranges: Mapping[Any, tuple[Any, Any]]

    def solve(
        self, names: Sequence[str], captured: Sequence[Any], given: Sequence[Any], source: str
    ) -> dict[Any, int]:
        """The number that each symbol has when the inputs `captured` are those `given`.

        Raises
        ------
        InputError, naming the input: another number of dimensions, a size out of range or unequal to one that
            it must equal.
        """
        numbers: dict[Any, int] = {}
        derived: list[tuple[str, Any, int]] = []
        for name, one, value in zip(names, captured, given, strict=True):
            place = f"input {name!r}"
            if not isinstance(one, torch.Tensor):
                continue
            if not isinstance(value, torch.Tensor):
                raise InputError(source, place, f"a {type(value).__name__}", f"a tensor of {one.dtype}")
            if value.dim() != one.dim():
                raise InputError(source, place, f"{value.dim()} dimensions", f"{one.dim()}, as captured")
            for axis, (size, wanted) in enumerate(zip(value.shape, one.shape, strict=True)):
                formula = _formula(wanted)
                where = f"{place}, dimension {axis}"
                if formula is None:
                    continue
                if not formula.is_Symbol:
                    derived.append((where, formula, size))
                elif numbers.setdefault(formula, size) != size:
                    expected = f"{numbers[formula]}, as in the inputs before"
                    raise InputError(source, where, f"size {size}", expected)
                else:
                    self._check(formula, size, where, source)
        for where, formula, size in derived:
            self._derive(formula, size, numbers, where, source)
        return numbers

    def numbers(self, sizes: Iterable[Any], values: Mapping[Any, int]) -> tuple[int, ...]:
        """`sizes` (of a shape, or strides) as plain numbers."""
        return tuple(
            size if (formula := _formula(size)) is None else int(formula.xreplace(values)) for size in sizes
        )

    def _check(self, symbol: Any, size: int, where: str, source: str) -> None:
        low, high = self.ranges.get(symbol, (0, None))
        if (high is not None and size > high) or size < low:
            limit = "" if high is None or not high.is_finite else f" to {high}"
            raise InputError(source, where, f"size {size}", f"{low}{limit}")

    def _derive(self, formula: Any, size: int, numbers: dict[Any, int], where: str, source: str) -> None:
        """Find the symbol in `formula` (as 2*n), or see that it has the right value."""
        import sympy

        unknown = formula.free_symbols - numbers.keys()
        if len(unknown) == 1:
            (symbol,) = unknown
            found = sympy.solve(formula.xreplace(numbers) - size, symbol)
            if len(found) == 1 and found[0].is_Integer:
                numbers[symbol] = int(found[0])
                self._check(symbol, numbers[symbol], where, source)
        if formula.xreplace(numbers) != size:
            raise InputError(source, where, f"size {size}", f"{formula}, as captured")


def _formula(size: Any) -> Any:
    """The expression of a symbolic size; None for a plain number."""
    if isinstance(size, int):
        return None
    formula = size.node.expr
    return None if formula.is_Integer else formula
