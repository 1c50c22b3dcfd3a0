"""From heuristics and cuts to the exact search: the best order and what is proved, better and better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np

from memplan_engine.graph import Graph, Op, Role, Storage, Tensor
from memplan_engine.kernels.order import closed_sets
from memplan_engine.kernels.order.flow import ENDLESS, push_flow
from memplan_engine.kernels.order.greedy import greedy_order, move_blocks
from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.both_ends import with_ending
from memplan_engine.rewrites.order.cases import CaseTree, prove_by_ends
from memplan_engine.rewrites.order.cut_bound import NOTHING, Cuts, cut_bound
from memplan_engine.rewrites.order.heuristics import orders_by_rules
from memplan_engine.rewrites.order.order_problem import OrderProblem, order_problem
from memplan_engine.rewrites.order.pairs import FEW_UNITS, MANY_UNITS, PairSearch
from memplan_engine.rewrites.order.windows import window
from memplan_engine.strategies.base import SolveLimits

FIRST_CUTS = 32
"""Before anything else is loaded: most captured graphs are proved by 1 to 25."""
FIRST_STATES = 4_000
"""Of the first exact search, before anything else is tried: on captured graphs 130 have been enough."""
BRIEF_CUTS, BRIEF_WORK = 256, 4_000_000
"""Of a search that may not hang on the clock: cuts, and states times units, so that a graph of 1,000 ops gets
FIRST_STATES. It takes 0.2 s at most on the example graphs."""
FIRST_SECONDS = 0.5
"""Of that search and of each way to go on in the first round, but for the exact search."""
MORE, LONGER = 4.0, 2.0
"""The exact search takes so much longer than other parts of a round, and a round than the one before."""
PROOF_SECONDS = 3.0
"""Of a proof by pairs for a peak that the search alone has proved. 23 of 24 layered random graphs of 60 to
1,000 ops took 0.01 to 1.1 s of processor time (`benchmarks order_parts`), the last has no such proof; the
rest is for a shared core."""
ENDS_SECONDS = 2.0
"""Of a proof by what runs first or last: one try takes 0.01 to 0.6 s on steps of 1,200 to 2,000 units."""
DIVES = (0.5, 0.25, 0.1)
"""Parts of the gap within which a search looks for any order at all."""
TRIES = 2
"""Cuts tried at a state: on AmoebaNet 4 and 8 save a sixth of the states and take a fifth longer."""
PRUNING_CUTS = 16
"""Units whose flows are kept to prune by; of twice as many nothing is gained on NASNet and AmoebaNet."""
POOL_BYTES = 400_000_000
"""What the states of a search may take in memory: one byte a unit, and 64 bytes, for each."""
PAIR_NODES = 256
"""Nodes of a tree of pairs at most: the 23 proofs above had 3 to 207 with 64 units; those with 16 units that
failed had 200 to 560 when their time was up, and proved nothing more."""
NARROW = 1e-3
"""Part of the peak below which a gap is not halved by orders from both ends: ten halvings at most, 5 ms each
on a step of 5,000 ops."""
WINDOWS = 32, 64, 128
"""Units of the parts of an order that are searched exactly. Of five layered random graphs (`benchmarks
order_parts`) 32 units lower four, by 3 to 14 %, where moves of blocks end, and 64 one of them once more; of
RandWire's third draw 96 to 128 find the best order, in 0.6 s at most; 256 win nothing and take seconds."""
WINDOW_STATES = 3_000
"""Of the search of such a part in the first round, which a core does in half a second: hard ones are left,
for there are others."""
RANDOM_ORDERS, MOVES = 8, 1_000
"""Randomised greedy orders at the start of a round, and moves of blocks between two looks at the limits."""
MOVES_NODES = 100
"""Nodes that so many moves count for where nodes are limited."""
GREEDY_NOISE = 1.0
"""Of the largest output. On nine layered random graphs the best of seven orders is 3.5 % below the one
without noise with 0.3, 5.6 with 0.5, 10.0 with 1, 7.0 with 3; on training steps nothing changes."""


class ProvedBy(StrEnum):
    """What proves a bound."""

    CUT = "one cut"
    CASES = "cuts by cases"
    RETURNED = "what is returned"
    SEARCH = "exhaustive search"


@dataclass(frozen=True, slots=True)
class OrderProgress:
    """After `seconds`: live bytes at the worst step of the best order so far, the bound proved for all
    orders so far, states searched; `found_by` says what made the order."""

    seconds: float
    peak_bytes: int
    bound_bytes: int
    states: int
    found_by: str


Tell = Callable[[OrderProgress], bool | None]
"""Hears of each better order or bound; True ends the search."""


class OrderSearch:
    """The best order so far (`order`, `peak`), and what is proved over all orders: `bound`, by a cut of
    `unit`, by `tree`, by what is returned, or by the search."""

    def __init__(self, problem: OrderProblem, limits: SolveLimits, tell: Tell | None = None) -> None:
        self.problem, self.limits, self.tell = problem, limits, tell
        self.order: Ints = np.arange(len(problem.units))
        self.live = problem.live(self.order)
        self.peak, self.found_by = int(self.live.max(initial=0)), "as given"
        self.bound, self.proved_by, self.unit = 0, ProvedBy.CUT, -1
        self.tree: CaseTree | None = None
        self.unprovable = ENDLESS
        """Bytes that are known not to be proved by what runs first or last."""
        self.cuts = Cuts(problem)
        self.states = 0
        """Closed sets that the exact searches have visited."""

    @property
    def is_done(self) -> bool:
        """Whether the order is proved to be best, or the time is up."""
        return self.bound >= self.peak or self.limits.stopped

    def begin(self) -> None:
        """The first cuts, and the kernels of what comes after them: to compile them, which is done once,
        takes longer than most searches, and is not counted among their seconds."""
        self._report()
        self._cut(FIRST_CUTS)
        self._prove(self.problem.returned_bytes, ProvedBy.RETURNED)
        if not self.is_done:
            load_order_kernels()

    def run(self) -> None:
        """Until the order is proved to be best or the limits end it."""
        self._rules()
        self._cut(seconds=FIRST_SECONDS)
        self._exact(self.bound, FIRST_STATES, FIRST_SECONDS)
        self._prove_ends(ENDS_SECONDS)
        self._prove_pairs(FIRST_SECONDS, FEW_UNITS)
        seconds, seed, units = FIRST_SECONDS, 0, FEW_UNITS
        most = POOL_BYTES // (len(self.problem.units) + 64)
        while not self.is_done:
            self._improve(seed, seconds)
            self._cut(seconds=seconds)
            for part in DIVES:
                aim = self.bound + int((self.peak - self.bound) * part)
                self._exact(aim, most, seconds / len(DIVES))
            self._prove_ends(max(seconds, ENDS_SECONDS))
            units = min(2 * units, MANY_UNITS)
            self._prove_pairs(LONGER * seconds, units)
            self._exact(self.bound, most, MORE * seconds)
            seconds, seed = LONGER * seconds, seed + 1
        self._prove_pairs(PROOF_SECONDS, MANY_UNITS)

    def run_briefly(self) -> None:
        """What does not hang on the clock: some cuts, one search of few states, the rules."""
        self._cut(BRIEF_CUTS)
        self._exact(self.bound, BRIEF_WORK // max(len(self.problem.units), BRIEF_WORK // FIRST_STATES), None)
        self._rules()

    def live_of_units(self) -> Ints:
        """The live bytes while each unit runs in the best order, by unit."""
        live: Ints = np.empty_like(self.live)
        live[self.order] = self.live
        return live

    def _take(self, order: Ints, found_by: str) -> bool:
        """Keep `order` if it is better than the best so far; whether it is."""
        live = self.problem.live(order)
        better = len(live) == len(self.order) and int(live.max(initial=0)) < self.peak
        if better:
            self.order, self.live, self.peak, self.found_by = order, live, int(live.max()), found_by
            self._report()
        return better

    def _prove(self, bound: int, proved_by: ProvedBy) -> None:
        if bound > self.bound:
            self.bound, self.proved_by = bound, proved_by
            self._report()

    def _report(self) -> None:
        progress = OrderProgress(self.limits.elapsed, self.peak, self.bound, self.states, self.found_by)
        if self.tell and self.tell(progress):
            self.limits.cancel()

    def _cut(self, most: int | None = None, seconds: float | None = None) -> None:
        """Cuts that can be better than the bound, within `seconds`."""
        if self.is_done:
            return
        share = self._part(seconds)
        with share.running():
            bound, unit = cut_bound(self.cuts, self.live_of_units(), self.bound, share, most)
        if unit >= 0:
            self.unit = unit
            self._prove(bound, ProvedBy.CUT)

    def _rules(self) -> None:
        if not self.is_done:
            for name, order in orders_by_rules(self.problem.arrays):
                self._take(order, name)
            self._meet()

    def _improve(self, seed: int, seconds: float) -> None:
        """Orders from both ends, randomised greedy ones, then blocks of the best one moved until `seconds`
        pass in vain, and parts of it searched."""
        self._meet()
        for number in range(RANDOM_ORDERS):
            if self.is_done:
                return
            noise = GREEDY_NOISE if number else 0.0
            draw = seed * RANDOM_ORDERS + number + self.limits.seed
            self._take(greedy_order(self.problem.arrays, self.bound, noise, draw, True), "greedy")
        moved, draw, until = self.order, seed, self.limits.spent + seconds
        while not self.is_done and self.limits.spent < until:
            draw += 1_000
            moved = move_blocks(self.problem.arrays, moved, self.bound, MOVES, draw, self.limits.stop)
            self.limits.count(MOVES_NODES)
            if self._take(moved, "block moves"):
                until = self.limits.spent + seconds
        self._search_windows(seconds)

    def _search_windows(self, seconds: float) -> None:
        """Exact searches of parts of the best order around its worst steps, small parts first, within
        `seconds`: whatever falls below the peak counts, until all steps have."""
        order, live, until = self.order, self.live, self.limits.spent + seconds
        states = int(WINDOW_STATES * seconds / FIRST_SECONDS)
        for width in WINDOWS:
            hard: set[int] = set()
            while not self.is_done and self.limits.spent < until:
                worst = sorted(set(np.flatnonzero(live == live.max()).tolist()) - hard)
                if not worst:
                    break
                first = max(0, min(worst[0] - width // 2, len(order) - width))
                within = order[first : first + width]
                part = OrderSearch(window(self.problem, order, first, first + len(within)), self.limits)
                part._exact(self.bound, states, seconds)
                self.states += part.states
                if part.peak == live.max():
                    hard.update(range(worst[0] - width // 4, worst[0] + width // 4))
                    continue
                inner = within[part.order[1:] - 1]
                order = np.concatenate([order[:first], inner, order[first + width :]])
                live, hard = self.problem.live(order), set()
                self._take(order, "windows")

    def _meet(self) -> None:
        """Halve the gap: at a limit within it, what is free at the end is placed there, and the rest is run
        greedily from the beginning."""
        low, high = self.bound, self.peak
        while not self.is_done and high - low > NARROW * high:
            limit = low + (high - low) // 2
            arrays = with_ending(self.problem.arrays, limit)
            order = greedy_order(arrays, limit, 0.0, 0, True)
            self._take(order, "both ends")
            reached = int(self.problem.live(order).max())
            low, high = (low, reached) if reached <= limit else (limit + 1, high)

    def _prove_ends(self, seconds: float) -> None:
        """Prove the peak by what runs first or last of some units, or, halving the gap, as much as that
        proves, within `seconds`."""
        if self.peak == 0:
            return
        share = self._part(seconds)
        with share.running():
            while self._is_uncertified and not share.stopped:
                target, gap = self.peak, self.unprovable - self.bound
                if target >= self.unprovable:
                    if gap <= 1 + NARROW * self.bound:
                        break
                    target = self.bound + gap // 2
                tree = prove_by_ends(self.cuts, target, share.stop)
                share.count(len(self.problem.units))
                if tree is not None:
                    self.bound, self.proved_by, self.tree = target, ProvedBy.CASES, tree
                    self._report()
                elif not share.stopped:
                    self.unprovable = target

    def _prove_pairs(self, seconds: float, units: int) -> None:
        """Prove by pairs what cuts alone do not, up to the peak of the best order, within `seconds`."""
        if self.peak == 0 or self.limits.stopped or not self._is_uncertified:
            return
        share = self._part(seconds)
        with share.running():
            search = PairSearch(self.problem, self.peak, self.order, share, units)
            proved, tree = search.prove(PAIR_NODES)
        if proved > self.bound or (proved == self.bound and self.proved_by is ProvedBy.SEARCH):
            self.bound, self.proved_by, self.tree = proved, ProvedBy.CASES, tree
            self._report()

    @property
    def _is_uncertified(self) -> bool:
        return self.bound < self.peak or self.proved_by is ProvedBy.SEARCH

    def _exact(self, low: int, most: int, seconds: float | None) -> None:
        """Search closed sets for an order of at most `low`, or else the least above it, with `most` states
        and `seconds`, None for no limit. From the proved bound on, how it ends is a proof."""
        if self.is_done:
            return
        share, before = self._part(seconds), self.limits.visited
        with share.running():
            ended, proved, order = closed_sets.search_closed_sets(
                with_ending(self.problem.arrays, low),
                low,
                self.peak,
                self._pruning(),
                TRIES,
                min(most, share.nodes_left) + len(self.problem.units),
                share.stop,
                self.limits.counter,
            )
        self.states += self.limits.visited - before
        if ended == closed_sets.FOUND:
            self._take(order, "exact search")
        if low == self.bound or proved > low:
            self._prove(min(proved, self.peak), ProvedBy.SEARCH)

    def _part(self, seconds: float | None) -> SolveLimits:
        """Return the limits of a part of the search; None leaves only those of the search."""
        return self.limits.child() if seconds is None else self.limits.part(seconds)

    def _pruning(self) -> closed_sets.Cuts:
        """The flows of the units with the highest bounds. One that may write over an input is counted as if
        it did."""
        live = self.live_of_units()
        network, rows = self.cuts.network, []
        for unit in np.argsort(-live, kind="stable")[: 2 * PRUNING_CUTS].tolist():
            network.room[:] = self.cuts.rooms
            flow = push_flow(network, *self.cuts.sides(unit), ENDLESS)
            above = 0 if len(self.cuts.ways(unit)) > 1 else self.cuts.above(unit, NOTHING)
            rows.append((flow + above, unit, above, flow, network.room.copy()))
        rows = sorted(rows, key=lambda row: -row[0])[:PRUNING_CUTS]
        units, adds, flows = (np.array([row[at] for row in rows], np.int64) for at in (1, 2, 3))
        return closed_sets.Cuts(units, adds, flows, np.stack([row[4] for row in rows]), network)


@cache
def load_order_kernels() -> None:
    """Search an order of one op for nothing, with every kernel."""
    one = Storage("y", 1, Role.OUTPUT)
    graph = Graph("one", (one,), (Tensor("y", (), "", 1, "y"),), (Op("y", "", (), ("y",)),), (), ("y",))
    search = OrderSearch(order_problem(graph), SolveLimits())
    search._improve(0, 0.0)
    with_ending(search.problem.arrays, 0)
    move_blocks(search.problem.arrays, search.order, 0, 1, 0, search.limits.stop)
    search._exact(0, 1, 1.0)
