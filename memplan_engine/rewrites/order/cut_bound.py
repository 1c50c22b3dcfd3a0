"""Lower bounds over all orders: the bytes that must be live while an op runs, by a minimum cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.flow import ENDLESS, Network, push_flow
from memplan_engine.kernels.types import Flags
from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.certificate import ArcKind, CutProof, Flow, FlowArc
from memplan_engine.rewrites.order.order_problem import OrderProblem
from memplan_engine.strategies.base import SolveLimits

Pair = tuple[int, int]
"""Two units, the first of which runs before the second."""
NOTHING = -1
"""What a unit writes over that writes over nothing."""
NOBODY = -1
"""No other unit."""


@dataclass(slots=True, eq=False)
class Cuts:
    """The cuts of `problem` for the orders that keep `pairs` as well.

    Every order passes, right before unit v, a closed set that holds v's predecessors and not v. Nodes of the
    network are units and, behind them, storages. In a set that is closed a unit brings those that it waits
    for (an arc of endless room); a storage whose maker is in it either costs its bytes (the arc from its
    maker) or has all its users in it, too. The least such set is a minimum cut, and a flow proves it.
    """

    problem: OrderProblem
    pairs: tuple[Pair, ...] = ()
    keeps: bool = False
    """Whether the flow of each unit is kept, to go on from: as much memory as the network, for each."""
    network: Network = field(init=False)
    rooms: Ints = field(init=False)
    """What each arc has room for while nothing flows."""
    _kept: dict[tuple[int, int], tuple[int, Ints]] = field(default_factory=dict)
    """By unit and what it writes over, a flow and the room that it leaves."""

    def __post_init__(self) -> None:
        self.network = make_network(self.problem.arrays, self.pairs)
        self.rooms = self.network.room.copy()

    def bound(self, unit: int, enough: int = ENDLESS, *, before: int = NOBODY, after: int = NOBODY) -> int:
        """The bytes that are live while `unit` runs, at least, in every order, or in those in which another
        unit runs `before` it or `after` it; `enough` where that is reached."""
        least = enough
        for over in self.ways(unit):
            above = self.above(unit, over)
            wanted = max(0, least - above)
            flow = self._flow(unit, over, wanted)
            if flow < wanted and (before, after) != (NOBODY, NOBODY):
                inside, outside = self.sides(unit, over)
                inside[before if before != NOBODY else []] = True
                outside[after if after != NOBODY else []] = True
                flow += push_flow(self.network, inside, outside, wanted - flow)
            least = min(least, above + flow)
        return least

    def _flow(self, unit: int, over: int, wanted: int) -> int:
        """How much flows, up to `wanted` or more; it stands in the network then, and is kept."""
        known, room = self._kept.get((unit, over), (0, self.rooms))
        self.network.room[:] = room
        if known >= wanted:
            return known
        flow = known + push_flow(self.network, *self.sides(unit, over), wanted - known)
        if self.keeps and flow > known:
            self._kept[unit, over] = flow, self.network.room.copy()
        return flow

    def least_set(self, unit: int) -> Flags:
        """Of the sets right before `unit` with the fewest live bytes, the smallest: its units."""
        self._flow(unit, NOTHING, ENDLESS)
        inside, _ = self.sides(unit)
        net, stack = self.network, np.flatnonzero(inside).tolist()
        while stack:
            node = stack.pop()
            arcs = slice(net.arcs_of[node], net.arcs_of[node + 1])
            for head in net.head[arcs][net.room[arcs] > 0].tolist():
                if not inside[head]:
                    inside[head] = True
                    stack.append(head)
        return inside[: len(self.problem.units)]

    def ways(self, unit: int) -> list[int]:
        """What the unit may write over, NOTHING first."""
        o = self.problem.arrays
        return [NOTHING, *o.over[o.over_of[unit] : o.over_of[unit + 1]].tolist()]

    def above(self, unit: int, over: int) -> int:
        """How many bytes come on top of those live when the unit starts."""
        return int(self.problem.arrays.out[unit]) if over == NOTHING else 0

    def sides(self, unit: int, over: int = NOTHING) -> tuple[Flags, Flags]:
        """The nodes that are in every set right before `unit`, and those that are in none. To write over a
        storage all its other users have to have run."""
        o, n = self.problem.arrays, len(self.problem.units)
        inside, outside = np.zeros(n + len(o.size), np.bool_), np.zeros(n + len(o.size), np.bool_)
        inside[o.before[o.before_of[unit] : o.before_of[unit + 1]]] = True
        inside[[first for first, second in self.pairs if second == unit]] = True
        if over != NOTHING:
            inside[o.users[o.users_of[over] : o.users_of[over + 1]]] = True
            inside[unit] = False
        outside[n:] = o.kept
        outside[unit] = True
        return inside, outside

    def proof(self, unit: int, needed: int) -> CutProof | None:
        """The flows that prove `needed` bytes for `unit`, a unit of one op; None where it does not need as
        much."""
        names = self._names()
        flows = []
        for over in self.ways(unit):
            self.network.room[:] = self.rooms
            wanted = max(0, needed - self.above(unit, over))
            if push_flow(self.network, *self.sides(unit, over), wanted) < wanted:
                return None
            storage = self.problem.storages[over] if over != NOTHING else ""
            flows.append(Flow(names[unit], self._flowing(names), storage))
        return CutProof(names[unit], tuple(flows))

    def _flowing(self, names: Sequence[str]) -> tuple[FlowArc, ...]:
        """The arcs through which something flows now."""
        n, through = len(self.problem.units), self.rooms - self.network.room
        tails = np.repeat(np.arange(len(names)), np.diff(self.network.arcs_of))
        arcs = []
        for arc in np.flatnonzero((through > 0) & (self.rooms > 0)).tolist():
            tail, head = int(tails[arc]), int(self.network.head[arc])
            kind = ArcKind.TOUCHED if tail >= n else ArcKind.MAKES if head >= n else ArcKind.WAITS
            arcs.append(FlowArc(kind, names[tail], names[head], int(through[arc])))
        return tuple(arcs)

    def _names(self) -> list[str]:
        ops = self.problem.graph.ops
        return [*(ops[op].name for op in self.problem.main), *self.problem.storages]


def make_network(o: OrderArrays, pairs: Sequence[Pair] = ()) -> Network:
    """The network of `Cuts`; behind each arc stands one that takes its flow back."""
    n, m = len(o.out), len(o.size)
    units, storages = np.arange(n), np.arange(n, n + m)
    first, second = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    tail = np.concatenate(
        [np.repeat(units, np.diff(o.before_of)), second, o.maker, np.repeat(storages, np.diff(o.users_of))]
    )
    head = np.concatenate([o.before, first, storages, o.users])
    room = np.full(len(tail), ENDLESS)
    begin = len(o.before) + len(first)
    room[begin : begin + m] = o.size
    tails, heads = np.concatenate([tail, head]), np.concatenate([head, tail])
    order = np.argsort(tails, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    twin = np.concatenate([place[len(tail) :], place[: len(tail)]])
    return Network(
        np.concatenate([[0], np.cumsum(np.bincount(tails, minlength=n + m))]).astype(np.int64),
        heads[order],
        twin[order],
        np.concatenate([room, np.zeros_like(room)])[order],
    )


def cut_bound(
    cuts: Cuts, live: Ints, known: int, limits: SolveLimits, most: int | None = None
) -> tuple[int, int]:
    """The best bound by one cut and its unit; `known` and −1 where none passes `known`.

    `live` has the live bytes while each unit runs in some order: no cut of the unit holds more, and none
    above the peak is worth knowing. Units are taken by it, the largest first, until none can be better, the
    limits end it, or `most` are done.
    """
    best, found = known, -1
    peak = int(live.max(initial=0))
    for unit in np.argsort(-live, kind="stable")[:most].tolist():
        if live[unit] <= best or limits.stopped:
            break
        limits.count(1)
        bound = cuts.bound(unit, peak)
        if bound > best:
            best, found = bound, unit
    return best, found
