"""Formulas from measurements: the larger of two sums of sizes, and how far it is off.

What a kernel takes is a few copies of its operands in other layouts, made in two stages: the operands, and
then the result. So a formula is max(sum, sum) with small whole coefficients, a max-affine function (Magnani
and Boyd 2009, Convex piecewise-linear fitting) over a grid so small that all of it is tried: once of what the
kernel takes beside what it gives, once of what is held while it runs, less what it gives.

How far it is off is told by samples that it was not fitted to: all are left out in turn, a fifth at a time.
The error that is stated is the ⌈0.95 (n + 1)⌉-th smallest of those n, which a further call of the same kind
exceeds with a probability of at most 5 % where a formula is fitted once (split conformal prediction: Lei et
al. 2018, Distribution-free predictive inference for regression), and in practice where it is fitted in turns
(Barber et al. 2021, Predictive inference with the jackknife+, CV+).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memplan_engine.calibration.op_features import MADE

MOST_TERMS = 3
"""Sizes in one sum: input, weight and result."""
COEFFICIENTS = (1, 2, 3, 4)
"""How many copies of an operand may be there: as it was reordered, and as it was padded. Four are of weights,
in the backward pass of patches of 16 pixels."""
FOLDS = 5
"""Parts that the samples are dealt into, each left out once."""
WITHIN = 0.95
"""The share of further calls that shall be no further off than is stated."""
ENOUGH = 19
"""Samples of which the largest error is exceeded by at most 5 % of further calls: 1 / (19 + 1)."""
BEST_SUMS = 60
"""Sums that are tried in pairs: with all of them (some 4,000 of eight sizes) formulas are the same."""
GAIN = 1e-3
"""By how much the mean error, a share of the footprint, must fall for a third sum: a kernel that makes two
gradients has a stage for each beside the one in which both are there."""
LEAST = 4096
"""Bytes: errors of an op that holds less are shares of this; of a page nobody asks."""
TIE = 1e-7
"""What a term costs, far below the error of one byte in a megabyte."""
ALLOWED_OVER = 0.01
"""Mean share of the footprint that a part of a maximum may be too high."""

Sum = dict[str, int]


class Sample(NamedTuple):
    """One measured call: its sizes, bytes by name, what the kernel took, and what the op holds with it."""

    sizes: Mapping[str, int]
    nbytes: int
    footprint: int


class Fitted(NamedTuple):
    """A formula, and how far formulas of its kind were off each sample that they were not fitted to:
    |predicted − measured| as shares of the bytes that the op holds, its operands and results included."""

    sums: tuple[Sum, ...]
    errors: tuple[float, ...]


def fit(samples: Sequence[Sample]) -> Fitted:
    """The formula that fits best, mean error for mean error; of equals the one with the fewest terms."""
    errors = [0.0] * len(samples)
    for fold in range(min(FOLDS, len(samples))):
        others = [sample for place, sample in enumerate(samples) if place % FOLDS != fold]
        sums = _best(others)
        for place in range(fold, len(samples), FOLDS):
            errors[place] = error_of(sums, samples[place])
    return Fitted(_best(samples), tuple(errors))


def error_of(sums: Sequence[Mapping[str, int]], sample: Sample) -> float:
    """How far a formula is off a sample, as a share of all that the op holds."""
    return abs(evaluate(sums, sample.sizes) - sample.nbytes) / max(sample.footprint, LEAST)


def stated_error(errors: Sequence[float]) -> float | None:
    """The error that at most 5 % of further calls exceed, given those of calls left out; None where there
    are too few to say."""
    rank = ceil(WITHIN * (len(errors) + 1))
    return sorted(errors)[rank - 1] if rank <= len(errors) else None


def evaluate(sums: Sequence[Mapping[str, int]], sizes: Mapping[str, int]) -> int:
    """The value of a formula, bytes; 0 without sums, and where it would be less."""
    values = (sum(factor * sizes.get(name, 0) for name, factor in each.items()) for each in sums)
    return max(0, max(values, default=0))


def _best(samples: Sequence[Sample]) -> tuple[Sum, ...]:
    """The formula for `samples`, of what the kernel takes or of all that is held with what it gives."""
    if not any(sample.nbytes for sample in samples):
        return ()
    names = sorted({name for sample in samples for name in sample.sizes} - {MADE})
    sums, weights = _grid(tuple(names))
    table = np.array([[sample.sizes.get(name, 0) for name in names] for sample in samples], dtype=np.float64)
    measured = np.array([sample.nbytes for sample in samples], dtype=np.float64)
    made = np.array([sample.sizes.get(MADE, 0) for sample in samples], dtype=np.float64)
    scale = np.array([max(sample.footprint, LEAST) for sample in samples], dtype=np.float64)
    values = weights @ table.T
    cost, pair = _pair(weights, values, measured, scale)
    less: Sum = {}
    if made.any():
        whole, held = _pair(weights, values, measured + made, scale)
        if whole < cost:
            pair, less = held, {MADE: -1}
    return tuple(sums[number] | less for number in dict.fromkeys(pair) if sums[number])


def _pair(weights: Any, values: Any, measured: Any, scale: Any) -> tuple[float, tuple[int, ...]]:
    """The two sums whose maximum is nearest to what was measured, or three, by number, and its mean error."""
    # A sum that is part of a maximum is never above what was measured by much, but may be far below it.
    over = (np.maximum(values - measured, 0) / scale).mean(axis=1)
    alone = (np.abs(values - measured) / scale).mean(axis=1)
    likely = np.unique(np.concatenate([np.argsort(alone, kind="stable")[:BEST_SUMS], _likely(over, values)]))
    counts = (weights > 0).sum(axis=1)
    best = (float("inf"), 0, 0)
    for first in likely.tolist():
        errors = np.abs(np.maximum(values[first], values[likely]) - measured) / scale
        # A tie goes to fewer terms.
        cost = errors.mean(axis=1) + TIE * (counts[first] + counts[likely])
        place = int(cost.argmin())
        best = min(best, (float(cost[place]), first, int(likely[place])))
    both = np.maximum(values[best[1]], values[best[2]])
    errors = (np.abs(np.maximum(both, values) - measured) / scale).mean(axis=1)
    third = int((errors + TIE * counts).argmin())
    if errors[third] + GAIN < best[0]:
        return float(errors[third]), (*best[1:], third)
    return best[0], best[1:]


def _likely(over: Any, values: Any) -> Any:
    """Sums that are hardly ever above what was measured, the largest of them first."""
    candidates = np.flatnonzero(over < ALLOWED_OVER)
    return candidates[np.argsort(-values[candidates].mean(axis=1), kind="stable")][:BEST_SUMS]


@lru_cache(maxsize=8)
def _grid(names: tuple[str, ...]) -> tuple[list[Sum], NDArray[np.float64]]:
    """Every sum of `names`, and their factors: a row each. Neither may be changed."""
    sums = _sums(names)
    return sums, np.array([[each.get(name, 0) for name in names] for each in sums], dtype=np.float64)


def _sums(names: Sequence[str]) -> list[Sum]:
    """Every sum of up to MOST_TERMS sizes; the empty one is 0."""
    return [
        dict(zip(chosen, factors, strict=True))
        for count in range(MOST_TERMS + 1)
        for chosen in combinations(names, count)
        for factors in product(COEFFICIENTS, repeat=count)
    ]
