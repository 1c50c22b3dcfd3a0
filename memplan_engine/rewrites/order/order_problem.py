"""A graph as a question of order: units of ops, what runs before what, what each makes and touches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memplan_engine.graph import PRODUCED, Graph
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.walk import replay_order
from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.dependencies import order_dependencies


@dataclass(frozen=True, slots=True, eq=False)
class OrderProblem:
    """`units` are ops of `graph`, by index, that run one right behind the other: an op that makes no bytes
    of its own and waits for one unit only, such as a view or a `getitem`, follows it. To run it any later
    would gain nothing. `storages` are those that count, by name: what ops make, not inputs and weights.
    `arrays` has all of this for the kernels, by place in `units` and `storages`.
    """

    graph: Graph
    units: tuple[tuple[int, ...], ...]
    storages: tuple[str, ...]
    arrays: OrderArrays

    def ops_of(self, order: Iterable[int]) -> list[int]:
        """The ops, by index, as they run when the units run in `order`."""
        return [op for unit in order for op in self.units[unit]]

    def live(self, order: Sequence[int] | Ints) -> Ints:
        """Bytes alive while each unit of `order` runs; empty where a unit would run too early."""
        return replay_order(self.arrays, np.asarray(order, np.int64))

    def peak(self, order: Sequence[int] | Ints) -> int:
        """The most of them."""
        return int(self.live(order).max(initial=0))


def order_problem(
    graph: Graph, *, merge: bool = True, take_over: Mapping[int, Sequence[str]] | None = None
) -> OrderProblem:
    """What can be reordered in `graph`. Without `merge` each op is a unit of its own. `take_over` says, by
    index of an op, which storages it may write its output over where it is the last to touch them; each has
    as many bytes as the op makes."""
    needs = order_dependencies(graph)
    touches, maker, counted = _touches(graph)
    units, unit_of = _units(needs, set(maker.values()) if merge else set(range(len(needs))))
    names = tuple(maker)
    number = {name: place for place, name in enumerate(names)}
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    returned = {home[name] for name in graph.outputs}

    def of_units(of_op: Sequence[Iterable[int]]) -> list[list[int]]:
        lists: list[dict[int, None]] = [{} for _ in units]
        for op, own in enumerate(of_op):
            lists[unit_of[op]] |= dict.fromkeys(own)
        return [list(each) for each in lists]

    waits = of_units([[unit_of[other] for other in own] for own in needs])
    before = [[other for other in own if other != unit] for unit, own in enumerate(waits)]
    made: list[list[int]] = [[] for _ in units]
    for name, op in maker.items():
        made[unit_of[op]].append(number[name])
    touched = of_units([[number[name] for name in own] for own in touches])
    used = [[each for each in own if each not in made[unit]] for unit, own in enumerate(touched)]
    taken = take_over or {}
    over = of_units([[number[name] for name in taken.get(op, ())] for op in range(len(needs))])
    size = np.array([counted[name] for name in names], np.int64)
    arrays = OrderArrays(
        *_listed(before),
        *_listed(_turned(before, len(units))),
        *_listed(made),
        *_listed(used),
        *_listed(over),
        *_listed(_turned(used, len(names))),
        maker=np.array([unit_of[maker[name]] for name in names], np.int64),
        size=size,
        kept=np.array([name in returned for name in names], np.bool_),
        out=np.array([size[own].sum() for own in made], np.int64),
    )
    return OrderProblem(graph, tuple(map(tuple, units)), names, arrays)


def peak_in_order(graph: Graph) -> int:
    """The live bytes of `graph` at the worst step, one op a step as they stand; inputs and weights do not
    count."""
    return order_problem(graph, merge=False).peak(range(len(graph.ops)))


def _touches(graph: Graph) -> tuple[list[list[str]], dict[str, int], dict[str, int]]:
    """The storages that count and that each op touches, or holds by a name; who makes each of them, the first
    to touch it; and their bytes."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    counted = {s.name: s.nbytes for s in graph.storages if s.role in PRODUCED and s.nbytes}
    held: dict[str, list[str]] = {}
    for storage in graph.storages:
        held.setdefault(storage.held_by, []).append(storage.name)
    maker: dict[str, int] = {}
    touches = []
    for index, op in enumerate(graph.ops):
        own = [home[name] for name in (*op.inputs, *op.mutates, *op.outputs)]
        for name in own:
            if name in counted:
                maker.setdefault(name, index)
        touches.append([name for name in dict.fromkeys([*own, *held.get(op.name, ())]) if name in counted])
    return [[name for name in own if name in maker] for own in touches], maker, counted


def _units(needs: Sequence[Sequence[int]], alone: set[int]) -> tuple[list[list[int]], list[int]]:
    """The ops of each unit, in order, and the unit of each op; those `alone` begin a unit."""
    root = list(range(len(needs)))
    for index, before in enumerate(needs):
        roots = {root[other] for other in before}
        if index not in alone and len(roots) == 1:
            root[index] = roots.pop()
    members: dict[int, list[int]] = {}
    for index, first in enumerate(root):
        members.setdefault(first, []).append(index)
    number = {first: unit for unit, first in enumerate(members)}
    return list(members.values()), [number[first] for first in root]


def _listed(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Where each list begins, and all of them one behind the other."""
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return starts, np.fromiter((item for own in lists for item in own), np.int64, int(starts[-1]))


def _turned(lists: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """In which lists each of the numbers below `count` stands."""
    turned: list[list[int]] = [[] for _ in range(count)]
    for place, own in enumerate(lists):
        for item in own:
            turned[item].append(place)
    return turned
