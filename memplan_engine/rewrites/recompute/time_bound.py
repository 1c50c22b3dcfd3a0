"""Lower bounds on the time that has to be run again within a capacity, by minimum cuts.

At the first execution of an op v the ops that have run are a closed set: what v follows from is in it, v and
what follows from it are not. What has been made by then and is read from then on is either live at that
moment, or made again later. With a price on bytes (a Lagrange multiplier for the capacity) the cheapest such
set and choice together are a minimum cut: the closed sets of `rewrites.order.cut_bound` beside a network such
as that of torch's min-cut partitioner, with a node for running an op again. At each price and each v that is
a lower bound for every schedule, in whatever order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.order.flow import ENDLESS, Network, network, push_flow, reached
from memplan_engine.kernels.types import Flags
from memplan_engine.problem import Ints
from memplan_engine.rewrites.recompute.recompute_problem import RecomputeProblem
from memplan_engine.rewrites.recompute.time_proof import PARTS, TimeArc, TimeArcKind, TimeProof

LESS, MORE = 1 - 2**-40, 1 + 2**-40
"""What a price is multiplied with so that floating point rounds what it comes to down, or up."""
MOST_PRICES = 40
"""That are tried for one op: steps took 4 to 12."""
NO_CHEAPER = 2.0**-30
"""Part of what a choice comes to by which another has to be cheaper."""


@dataclass(frozen=True, slots=True, eq=False)
class TimeCut:
    """The cheapest choice at the first execution of the op `at`, at `price` ns a byte: `nbytes` are live,
    with what `at` makes itself. No schedule has extra ns + price · bytes below `value`."""

    at: int
    price: float
    value: float
    nbytes: int

    @property
    def extra(self) -> float:
        """What the choice runs again, ns."""
        return self.value - self.price * self.nbytes

    def least_extra(self, capacity: int) -> int:
        """What every schedule within `capacity` bytes takes again at least, ns, rounded down."""
        return max(0, floor(self.value - self.price * capacity * MORE))


class Around(NamedTuple):
    """What is known when an op is about to run for the first time: the nodes that are `inside` every cut and
    those that are `outside`, the storages that the op itself reads (`forced`), and what ops `cost` that run
    again, ns: of several that fill a storage only those count that have surely run before."""

    inside: Flags
    outside: Flags
    forced: Flags
    cost: Ints


@dataclass(slots=True, eq=False)
class TimeCuts:
    """The cuts of `problem`. Nodes are ops that have run, then ops that are done, which have run and do not
    run again, storages, and a sink. An op that has run either is done or costs its time. One that is done
    costs the bytes of what it has made wherever somebody who is not done reads that, or it is returned.

    Of several ops that fill a storage the first counts: where it has run, others may not have.
    """

    problem: RecomputeProblem
    net: Network = field(init=False)
    _held: Ints = field(init=False)
    """The arcs to storages, in their order."""
    _again: Ints = field(init=False)
    """The arcs from ops that have run to the same as done."""
    _rooms: Ints = field(init=False)
    """ENDLESS, 0 for arcs that take flow back."""
    _known: dict[int, Around] = field(default_factory=dict)

    def __post_init__(self) -> None:
        o, (spoiled, writers) = self.problem.arrays, self.problem.writers
        n, m = len(o.out), len(o.size)
        ran, done, storages, sink = np.arange(n), n + np.arange(n), 2 * n + np.arange(m), 2 * n + m
        later, earlier = self._waits()
        returned = np.flatnonzero(o.kept)
        users = np.repeat(storages, np.diff(o.users_of))
        tail = np.concatenate([later, ran, writers, done, done[o.maker], users, storages[returned]])
        head = np.concatenate(
            [earlier, done, done[spoiled], ran, storages, done[o.users], np.full(len(returned), sink)]
        )
        self.net = network(tail, head, np.full(len(tail), ENDLESS), sink + 1)
        self._rooms = self.net.room.copy()
        tails, forward = self._tails(), self._rooms > 0
        held = np.flatnonzero(forward & (self.net.head >= 2 * n) & (self.net.head < sink))
        again = np.flatnonzero(forward & (tails < n) & (self.net.head == tails + n))
        self._held, self._again = np.empty(m, np.int64), np.empty(n, np.int64)
        self._held[self.net.head[held] - 2 * n] = held
        self._again[tails[again]] = again

    def cut(self, at: int, price: float) -> TimeCut:
        """The cheapest choice at the first execution of the op `at`, in whatever order ops run."""
        around, room, n = self.around(at), self.net.room, len(self.problem.cost)
        again, own = self.problem.again, int(self.problem.own[at])
        price_of = np.floor(price * LESS * self.problem.sure * PARTS).astype(np.int64)
        room[:] = self._rooms
        room[self._held] = np.where(around.forced, 0, price_of)
        room[self._again[again]] = around.cost[again] * PARTS
        flow = push_flow(self.net, around.inside, around.outside, ENDLESS)
        side = reached(self.net, around.inside)
        maker = self.problem.arrays.maker
        kept = around.forced | (side[n + maker] & ~side[2 * n : -1])
        nbytes = int(self.problem.sure[kept].sum()) + own
        value = (flow + int(price_of[around.forced].sum())) / PARTS + price * LESS * own
        return TimeCut(at, price, value, nbytes)

    def proof(self, at: int, price: float) -> TimeProof:
        """The flow that proves what `cut` says of the same."""
        self.cut(at, price)
        ops = [op.name for op in self.problem.graph.ops]
        names, n = [*ops, *ops, *self.problem.storages, ""], len(ops)
        tails = self._tails()
        through = np.where(self._rooms > 0, self.net.room[self.net.back], 0)
        arcs = []
        for arc in np.flatnonzero(through).tolist():
            tail, head = int(tails[arc]), int(self.net.head[arc])
            if tail >= 2 * n:
                kind = TimeArcKind.READ
            elif tail >= n:
                kind = TimeArcKind.FIRST if head < n else TimeArcKind.HELD
            elif head < n:
                kind = TimeArcKind.WAITS
            else:
                kind = TimeArcKind.AGAIN if head == tail + n else TimeArcKind.SPOILED
            arcs.append(TimeArc(kind, names[tail], names[head], int(through[arc])))
        return TimeProof(ops[at], Fraction(price), tuple(arcs))

    def around(self, at: int) -> Around:
        """What is known before the op `at` runs first. Of several that fill a storage some may have run."""
        if at not in self._known:
            self._known[at] = self._around(at)
        return self._known[at]

    def _around(self, at: int) -> Around:
        o, needs, members = self.problem.arrays, self.problem.needs, self.problem.members
        n, own = len(needs), members[at][0]
        before, behind = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        before[list(needs[own])] = True
        for op in range(own - 1, -1, -1):
            if before[op]:
                before[list(needs[op])] = True
        behind[own] = True
        for op in range(own + 1, n):
            behind[op] = behind[list(needs[op])].any()
        first = np.array([each[0] for each in members])
        nodes = len(self.net.arcs_of) - 1
        inside, outside = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
        inside[: len(first)], outside[: len(first)], outside[-1] = before[first], behind[first], True
        forced = np.zeros(len(o.size), np.bool_)
        forced[o.used[o.used_of[at] : o.used_of[at + 1]]] = True
        surely = before * self.problem.cost_of_member
        cost = self.problem.cost.copy()
        for op, each in enumerate(members):
            if len(each) > 1:
                cost[op] = surely[list(each)].sum()
        return Around(inside, outside, forced, cost)

    def _waits(self) -> tuple[Ints, Ints]:
        """Ops, and those that each waits for: of several that fill a storage the first for others."""
        needs, members = self.problem.needs, self.problem.members
        op_of = {index: op for op, own in enumerate(members) for index in own}
        pairs = [(op, op_of[index]) for op, own in enumerate(members) for index in needs[own[0]]]
        later, earlier = np.array(pairs, np.int64).reshape(-1, 2).T
        return later, earlier

    def _tails(self) -> Ints:
        return np.repeat(np.arange(len(self.net.arcs_of) - 1), np.diff(self.net.arcs_of))


def priced_cuts(cuts: TimeCuts, at: int, capacity: int) -> list[TimeCut]:
    """Cuts at `at` with prices that come closer and closer to the best one for `capacity`, where the bytes
    that are kept pass from above it to below (Newton's method on a concave function in pieces); the best
    bound is among them. One at the highest price alone keeps more than `capacity` where no schedule fits."""
    found = [cuts.cut(at, cuts.problem.dearest)]
    if found[0].nbytes > capacity:
        return found
    free = cuts.cut(at, 0.0)
    found.append(free)
    if free.nbytes <= capacity:
        return found
    low, high = free, found[0]
    for _ in range(MOST_PRICES):
        # Both choices are worth the same there: it is the best price, or a third choice is cheaper.
        price = (high.extra - low.extra) / (low.nbytes - high.nbytes)
        if not low.price < price < high.price:
            break
        cut = cuts.cut(at, price)
        found.append(cut)
        if cut.value >= (1 - NO_CHEAPER) * (low.extra + price * low.nbytes):
            break
        low, high = (cut, high) if cut.nbytes > capacity else (low, cut)
    return found
