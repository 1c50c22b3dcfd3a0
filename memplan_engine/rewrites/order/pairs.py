"""Proofs that go beyond one cut: of two ops that may run in either order, one runs first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.certificate import PairProof, Proof
from memplan_engine.rewrites.order.cut_bound import Cuts, Pair
from memplan_engine.rewrites.order.order_problem import OrderProblem
from memplan_engine.strategies.base import SolveLimits

FEW_UNITS, MANY_UNITS = 24, 128
"""Units of which pairs are formed, those with the highest bounds of their own: few at first, and many where a
peak is known to be least. DARTS's CIFAR network needs few, a transformer's training step many."""


@dataclass(frozen=True, slots=True)
class PairTree:
    """A proof in the making: `unit` alone, or two cases of a pair of units."""

    unit: int = -1
    pair: Pair = (-1, -1)
    first: PairTree | None = None
    second: PairTree | None = None


def prove_by_pairs(
    problem: OrderProblem, target: int, live: Ints, limits: SolveLimits, nodes: int, units: int
) -> PairTree | None:
    """A tree that proves `target` bytes for every order; None when it is not found with `nodes` nodes.
    Pairs are formed of `units` units.

    At each node the pair is taken whose weaker case is the strongest, by the cuts of its two units alone; a
    case that does not come to `target` is split again. With all pairs decided one order is left, whose cuts
    are what is live in it: in the end every peak is proved.
    """
    left = [nodes]

    def grow(pairs: tuple[Pair, ...]) -> PairTree | None:
        left[0] -= 1
        if limits.stopped or left[0] < 0:
            return None
        cuts = Cuts(problem, pairs)
        bounds: dict[int, int] = {}
        for unit in np.argsort(-live, kind="stable")[: 4 * units].tolist():
            bounds[unit] = cuts.bound(unit, target)
            if bounds[unit] >= target:
                return PairTree(unit)
        pair = _strongest_pair(problem, cuts, bounds, target, limits, units)
        if pair is None:
            return None
        first = grow((*pairs, pair))
        second = grow((*pairs, pair[::-1])) if first else None
        return PairTree(-1, pair, first, second) if second else None

    return grow(())


def _strongest_pair(
    problem: OrderProblem, cuts: Cuts, bounds: dict[int, int], target: int, limits: SolveLimits, units: int
) -> Pair | None:
    """The pair whose cases prove most: the weaker first, then both together."""
    among = sorted(bounds, key=lambda unit: -bounds[unit])[:units]
    best, found = (0, 0), None
    for one, other in _free_pairs(problem, cuts.pairs, among):
        if limits.stopped:
            return None
        cases = sorted(_case(problem, cuts, pair, target) for pair in ((one, other), (other, one)))
        score = (cases[0], sum(cases))
        if score > best:
            best, found = score, (one, other)
        if cases[0] >= target:
            break
    return found


def _case(problem: OrderProblem, cuts: Cuts, pair: Pair, target: int) -> int:
    more = Cuts(problem, (*cuts.pairs, pair))
    return max(more.bound(unit, target) for unit in pair)


def _free_pairs(problem: OrderProblem, pairs: tuple[Pair, ...], among: list[int]) -> Iterator[Pair]:
    """Those of `among` that may run in either order."""
    behind = {unit: _reach(problem, pairs, unit) for unit in among}
    for one, other in combinations(among, 2):
        if not behind[one][other] and not behind[other][one]:
            yield one, other


def _reach(problem: OrderProblem, pairs: tuple[Pair, ...], unit: int) -> list[bool]:
    """Which units wait for `unit`."""
    o = problem.arrays
    reached, stack = [False] * len(problem.units), [unit]
    while stack:
        v = stack.pop()
        later = o.after[o.after_of[v] : o.after_of[v + 1]].tolist()
        for u in (*later, *(second for first, second in pairs if first == v)):
            if not reached[u]:
                reached[u] = True
                stack.append(u)
    return reached


def write_out(
    tree: PairTree, problem: OrderProblem, single: OrderProblem, target: int, pairs: tuple[Pair, ...] = ()
) -> Proof | None:
    """The proof with its flows, between ops: `single` is the problem in which each op is a unit. None where
    that does not need `target` bytes."""
    if tree.first is None or tree.second is None:
        return Cuts(single, pairs).proof(problem.main[tree.unit], target)
    one, other = (problem.main[unit] for unit in tree.pair)
    first = write_out(tree.first, problem, single, target, (*pairs, (one, other)))
    second = write_out(tree.second, problem, single, target, (*pairs, (other, one)))
    ops = problem.graph.ops
    return PairProof(ops[one].name, ops[other].name, first, second) if first and second else None
