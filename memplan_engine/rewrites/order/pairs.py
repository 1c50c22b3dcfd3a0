"""Proofs that go beyond one cut: of two ops that may run in either order, one runs first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, count, zip_longest

import numpy as np

from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.cases import CaseTree
from memplan_engine.rewrites.order.cut_bound import Cuts, Pair
from memplan_engine.rewrites.order.order_problem import OrderProblem
from memplan_engine.strategies.base import SolveLimits

FEW_UNITS, MANY_UNITS = 8, 64
"""Units of which pairs are formed: few at first, twice as many each time that they were not enough, and many
for what is left. On Moccasin's n = 1,000, 8 come within 8.0 % of the order given in 4 s of processor time, 24
within 8.6; DeBERTa needs 16 or more."""
OBSTRUCTED = 4
"""Units, of those with most bytes live, whose cuts are held against what ran before them."""
MOST_CLOSED = 16
"""Cases that are closed before all cuts are looked at again."""


@dataclass(frozen=True, slots=True)
class PairSearch:
    """A search for a proof that every order of `problem` needs `target` bytes, which `order` does.

    Pairs are formed of `units` units that most bytes are live beside in `order`, of as many with the best
    cuts, and of those in which a prefix of `order` differs from the cut at one of its worst steps.
    """

    problem: OrderProblem
    target: int
    order: Ints
    limits: SolveLimits
    units: int

    def prove(self, nodes: int) -> tuple[int, CaseTree]:
        """The bytes, at most `target`, that are proved by a tree of about `nodes` nodes, and the tree.

        The leaf that proves least is split. Where a case of a pair already comes to `target` by the cuts of
        its two units alone, only the other case is left: all such pairs are taken, one below the other. Else
        it is the pair whose weaker case is the strongest. With all pairs decided one order is left, whose
        cuts are what is live in it: in the end every peak is proved.
        """
        worst = np.argsort(-self.problem.live(self.order), kind="stable")
        among = self.order[worst[: 4 * self.units]].tolist()
        root = CaseTree((), *self._best_cut((), among))
        number = count()
        leaves = [(root.bound, next(number), root)]
        while leaves[0][0] < self.target and not self.limits.stopped and nodes > 0:
            leaf, cases = leaves[0][2], []
            cuts = Cuts(self.problem, leaf.pairs, keeps=True)
            closed, strongest = self._look_at_pairs(cuts, among)
            for pair, unit in closed:
                _, leaf = leaf.split(pair, (self.target, unit), (leaf.bound, leaf.unit))
                nodes -= 1
            if closed:
                leaf.bound, leaf.unit = max(
                    (leaf.bound, leaf.unit), self._best_cut(leaf.pairs, among), key=lambda best: best[0]
                )
                cases = [leaf]
            elif strongest:
                pairs = (*leaf.pairs, strongest), (*leaf.pairs, strongest[::-1])
                cases = list(leaf.split(strongest, *(self._best_cut(each, among) for each in pairs)))
                nodes -= 2
            if not cases:
                break
            heapq.heappop(leaves)
            for case in cases:
                heapq.heappush(leaves, (case.bound, next(number), case))
        return leaves[0][0], root

    def _best_cut(self, pairs: tuple[Pair, ...], among: list[int]) -> tuple[int, int]:
        """What the best cut of one of the units proves, and that unit."""
        cuts, best, found = Cuts(self.problem, pairs), -1, -1
        for unit in among:
            self.limits.count(1)
            bound = cuts.bound(unit, self.target)
            if bound > best:
                best, found = bound, unit
            if best >= self.target:
                break
        return best, found

    def _look_at_pairs(self, cuts: Cuts, among: list[int]) -> tuple[list[tuple[Pair, int]], Pair | None]:
        """The pairs whose order as they stand comes to `target`, each with the unit whose cut tells; and the
        pair whose cases prove most, the weaker first, then both together."""
        closed: list[tuple[Pair, int]] = []
        best, found = (-1, -1), None
        after = _After(cuts)
        for one, other in self._pairs(cuts, among):
            if self.limits.stopped:
                return [], None
            if len(closed) >= MOST_CLOSED:
                break
            if after.runs(one, other) or after.runs(other, one):
                continue
            cases = [self._case(cuts, pair) for pair in ((one, other), (other, one))]
            score = (min(cases)[0], cases[0][0] + cases[1][0])
            if score > best:
                best, found = score, (one, other)
            for (bound, unit), pair in zip(cases, ((one, other), (other, one)), strict=True):
                if bound >= self.target and score[0] < self.target:
                    closed.append((pair, unit))
                    after.add(pair[::-1])
            if score[0] >= self.target:
                return [], found
        return closed, found

    def _case(self, cuts: Cuts, pair: Pair) -> tuple[int, int]:
        first, second = pair
        self.limits.count(2)
        return max(
            (cuts.bound(first, self.target, after=second), first),
            (cuts.bound(second, self.target, before=first), second),
        )

    def _pairs(self, cuts: Cuts, among: list[int]) -> Iterator[Pair]:
        bounds = {unit: cuts.bound(unit, self.target) for unit in among}
        by_bound = sorted(among, key=lambda unit: -bounds[unit])[: self.units]
        for unit in among[:OBSTRUCTED]:
            if bounds[unit] < self.target:
                yield from ((unit, other) for other in self._differences(cuts, unit)[: self.units])
        yield from combinations(dict.fromkeys((*by_bound, *among[: self.units])), 2)

    def _differences(self, cuts: Cuts, unit: int) -> list[int]:
        """In what the prefix of `order` before `unit` and the set of its minimum cut differ: the first to run
        of those in the cut alone, and the last of those in the prefix alone."""
        o, order = self.problem.arrays, self.order
        at = int(np.flatnonzero(order == unit)[0])
        ran = np.zeros(len(order), np.bool_)
        ran[order[:at]] = True
        cut = cuts.least_set(unit)
        early = [
            v
            for v in order[at + 1 :].tolist()
            if cut[v] and ran[o.before[o.before_of[v] : o.before_of[v + 1]]].all()
        ]
        late = [
            v
            for v in order[:at][::-1].tolist()
            if not cut[v] and not ran[o.after[o.after_of[v] : o.after_of[v + 1]]].any()
        ]
        return [each for both in zip_longest(early, late) for each in both if each is not None]


class _After:
    """Which units run after which, in all orders that keep the pairs."""

    def __init__(self, cuts: Cuts) -> None:
        self.arrays, self.pairs = cuts.problem.arrays, list(cuts.pairs)
        self.known: dict[int, list[bool]] = {}

    def add(self, pair: Pair) -> None:
        self.pairs.append(pair)
        self.known.clear()

    def runs(self, unit: int, first: int) -> bool:
        """Whether `unit` runs after `first`, or is it."""
        if first not in self.known:
            self.known[first] = self._reach(first)
        return self.known[first][unit]

    def _reach(self, first: int) -> list[bool]:
        o, reached, stack = self.arrays, [False] * len(self.arrays.out), [first]
        reached[first] = True
        while stack:
            v = stack.pop()
            later = o.after[o.after_of[v] : o.after_of[v + 1]].tolist()
            for u in (*later, *(second for one, second in self.pairs if one == v)):
                if not reached[u]:
                    reached[u] = True
                    stack.append(u)
        return reached
