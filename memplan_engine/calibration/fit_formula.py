"""Formulas from measurements: the larger of two sums of sizes.

What a kernel takes is a few copies of its operands in other layouts, made in two stages: the operands, and
then the result. So a formula is max(sum, sum) with small whole coefficients, a max-affine function (Magnani
and Boyd 2009, Convex piecewise-linear fitting) over a grid so small that all of it is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

MOST_TERMS = 3
"""Sizes in one sum: input, weight and result."""
COEFFICIENTS = (1, 2)
"""How many copies of an operand may be there: as it was reordered, and as it was padded."""
HELD_OUT = 5
"""Each fifth sample is not fitted, but judges the formula."""
BEST_SUMS = 60
"""Sums that are tried in pairs: with all of them (some 700 of eight sizes) formulas are the same."""

Sum = dict[str, int]


LEAST = 4096
"""Bytes: errors of an op that holds less are shares of this; of a page nobody asks."""


class Sample(NamedTuple):
    """One measured call: its sizes, bytes by name, what the kernel took, and what the op holds with it."""

    sizes: Mapping[str, int]
    nbytes: int
    footprint: int


class Fitted(NamedTuple):
    """A formula, and how far it is off samples that it was not fitted to (`judged` of them): the mean and the
    worst of |predicted − measured| over the bytes that the op holds, its operands and results included."""

    sums: tuple[Sum, ...]
    judged: int
    mean_error: float
    worst_error: float


def fit(samples: Sequence[Sample]) -> Fitted:
    """The formula that fits best, mean error for mean error; of equals the one with the fewest terms."""
    judges = list(samples[HELD_OUT - 1 :: HELD_OUT]) or list(samples)
    fitted = [sample for place, sample in enumerate(samples) if place % HELD_OUT != HELD_OUT - 1]
    names = sorted({name for sample in samples for name in sample.sizes})
    sums = list(_sums(names))
    table = np.array([[sample.sizes.get(name, 0) for name in names] for sample in fitted], dtype=np.float64)
    weights = np.array([[each.get(name, 0) for name in names] for each in sums], dtype=np.float64)
    measured = np.array([sample.nbytes for sample in fitted], dtype=np.float64)
    scale = np.array([max(sample.footprint, LEAST) for sample in fitted], dtype=np.float64)
    values = weights @ table.T
    # A sum that is part of a maximum is never above what was measured by much, but may be far below it.
    over = (np.maximum(values - measured, 0) / scale).mean(axis=1)
    alone = (np.abs(values - measured) / scale).mean(axis=1)
    likely = np.unique(np.concatenate([np.argsort(alone, kind="stable")[:BEST_SUMS], _likely(over, values)]))
    best = (float("inf"), 0, 0)
    for first in likely.tolist():
        errors = np.abs(np.maximum(values[first], values[likely]) - measured) / scale
        # A tie goes to fewer terms.
        terms = (weights[first] > 0).sum() + (weights[likely] > 0).sum(axis=1)
        cost = errors.mean(axis=1) + TIE * terms
        place = int(cost.argmin())
        best = min(best, (float(cost[place]), first, int(likely[place])))
    chosen = tuple(sums[number] for number in dict.fromkeys(best[1:]) if sums[number])
    errors = [
        abs(evaluate(chosen, judge.sizes) - judge.nbytes) / max(judge.footprint, LEAST) for judge in judges
    ]
    return Fitted(chosen, len(judges), float(np.mean(errors)), max(errors))


def _likely(over: Any, values: Any) -> Any:
    """Sums that are hardly ever above what was measured, the largest of them first."""
    candidates = np.flatnonzero(over < ALLOWED_OVER)
    return candidates[np.argsort(-values[candidates].mean(axis=1), kind="stable")][:BEST_SUMS]


TIE = 1e-7
"""What a term costs, far below the error of one byte in a megabyte."""
ALLOWED_OVER = 0.01
"""Mean share of the footprint that a part of a maximum may be too high."""


def _sums(names: Sequence[str]) -> list[Sum]:
    """Every sum of up to MOST_TERMS sizes; the empty one is 0."""
    return [
        dict(zip(chosen, factors, strict=True))
        for count in range(MOST_TERMS + 1)
        for chosen in combinations(names, count)
        for factors in product(COEFFICIENTS, repeat=count)
    ]


def evaluate(sums: Sequence[Mapping[str, int]], sizes: Mapping[str, int]) -> int:
    """The value of a formula, bytes; 0 without sums."""
    return max(
        (sum(factor * sizes.get(name, 0) for name, factor in each.items()) for each in sums), default=0
    )
