"""What a schedule in the given order lets go of before a step and makes again later, by minimum cuts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memplan_engine.kernels.order.flow import ENDLESS, Network, network, push_flow, reached
from memplan_engine.kernels.types import Flags
from memplan_engine.problem import Ints
from memplan_engine.rewrites.recompute.recompute_problem import RecomputeProblem
from memplan_engine.rewrites.recompute.time_proof import PARTS


@dataclass(slots=True, eq=False)
class ChoiceCuts:
    """The cuts of `problem` in its order. Nodes are storages, ops, and a sink. A storage that is needed later
    costs its bytes (the arc to its maker, or to the sink where that may not run again) or has its maker run
    again; that costs its time (the arc to the sink), and needs what it reads."""

    problem: RecomputeProblem
    _net: Network = field(init=False)
    _held: Ints = field(init=False)
    """The arcs of storages, in their order."""
    _runs: Ints = field(init=False)
    """The arcs from ops that may run again to the sink, −1 for the others."""
    _rooms: Ints = field(init=False)
    _known: dict[int, tuple[Flags, Flags, Flags, Flags]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        o, again = self.problem.arrays, self.problem.again
        n, m = len(o.out), len(o.size)
        sink = n + m
        storages, ops = np.arange(m), np.flatnonzero(again)
        reads = [np.arange(o.used_of[op], o.used_of[op + 1]) for op in ops]
        read = o.used[np.concatenate([np.zeros(0, np.int64), *reads])]
        tail = np.concatenate([storages, m + ops, m + np.repeat(ops, [len(own) for own in reads])])
        head = np.concatenate([np.where(again[o.maker], m + o.maker, sink), np.full(len(ops), sink), read])
        room = np.full(len(tail), ENDLESS)
        room[:m] = 0
        room[m : m + len(ops)] = self.problem.cost[ops] * PARTS
        self._net = network(tail, head, room, sink + 1)
        self._rooms = self._net.room.copy()
        # The first that leads from a node: those that take flow back stand behind it.
        self._held = self._net.arcs_of[storages]
        self._runs = np.where(again, self._net.arcs_of[m : m + n], -1)

    def choice(self, at: int, price: float, tilt: float = 0.0) -> Flags:
        """The storages that are gone before the step `at` by the cheapest choice at `price` ns a byte. Bytes
        that are made later cost more, by `tilt` of the price at the most: of equal layers those let go of
        theirs that come first, which make them again last."""
        o, room = self.problem.arrays, self._net.room
        m, n = len(o.size), len(o.out)
        price = min(price, self.problem.dearest / 2)
        if at not in self._known:
            self._known[at] = self._around(at)
        made, needed, forced, run = self._known[at]
        dearer = 1 + tilt * o.maker / max(1, at)
        room[:] = self._rooms
        room[self._held] = np.where(forced, 0, (price * dearer * o.size * PARTS).astype(np.int64))
        room[self._runs[self.problem.again & ~run]] = ENDLESS
        inside, outside = np.zeros(m + n + 1, np.bool_), np.zeros(m + n + 1, np.bool_)
        inside[:m] = needed & ~forced
        outside[m + n] = True
        push_flow(self._net, inside, outside, ENDLESS)
        side = reached(self._net, inside)
        kept = forced | (side[:m] & ~side[m : m + n][o.maker])
        return made & ~kept

    def _around(self, at: int) -> tuple[Flags, Flags, Flags, Flags]:
        """The storages that are made before `at`, those of them that it or something behind it needs, those
        that it reads itself, and the ops that can run again from there on."""
        o, (spoiled, writers) = self.problem.arrays, self.problem.writers
        steps = np.arange(len(o.out))
        users = np.repeat(np.arange(len(o.size)), np.diff(o.users_of))
        late, forced = o.kept.copy(), np.zeros(len(o.size), np.bool_)
        np.logical_or.at(late, users, (steps >= at)[o.users])
        forced[o.used[o.used_of[at] : o.used_of[at + 1]]] = True
        run = self.problem.again.copy()
        run[spoiled[writers < at]] = False
        made = o.maker < at
        return made, made & late, made & forced, run
