"""A graph as a question of order: units of ops, what runs before what, what each makes and touches."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memplan_engine.control_flow import branch_graph, contract, regions
from memplan_engine.graph import PRODUCED, Graph, Op, Role
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.walk import replay_order
from memplan_engine.problem import Ints
from memplan_engine.schedule import dependencies


@dataclass(frozen=True, slots=True, eq=False)
class OrderProblem:
    """`units` are ops of `graph`, by index, that run one right behind the other. An op that makes no bytes
    of its own and waits for one unit only, such as a view or a `getitem`, follows it: to run it any later
    would gain nothing. One that reads only inputs and weights, for one unit only, comes right before that:
    to run it any earlier would gain nothing. `main` is the op of each unit that the others follow or lead to:
    while it runs, most bytes of the unit are live. `storages` are those that count, by name: what ops make,
    not inputs and weights. `arrays` has all of this for the kernels, by place in `units` and `storages`.
    """

    graph: Graph
    units: tuple[tuple[int, ...], ...]
    main: tuple[int, ...]
    storages: tuple[str, ...]
    arrays: OrderArrays

    def ops_of(self, order: Iterable[int]) -> list[int]:
        """The ops, by index, as they run when the units run in `order`."""
        return [op for unit in order for op in self.units[unit]]

    def live(self, order: Sequence[int] | Ints) -> Ints:
        """Live bytes while each unit of `order` runs; empty where a unit would run too early."""
        return replay_order(self.arrays, np.asarray(order, np.int64))

    @property
    def returned_bytes(self) -> int:
        """What is live at the end of every order: storages that ops make and the graph returns."""
        return int(self.arrays.size[self.arrays.kept].sum())

    def peak(self, order: Sequence[int] | Ints) -> int:
        """The most of them."""
        return int(self.live(order).max(initial=0))


def order_problem(
    graph: Graph, *, merge: bool = True, take_over: Mapping[int, Sequence[str]] | None = None
) -> OrderProblem:
    """What can be reordered in `graph`. Without `merge` each op is a unit of its own. `take_over` says, by
    index of an op, which storages it may write its output over where it is the last to touch them; each has
    as many bytes as the op makes."""
    needs = dependencies(graph)
    touches, maker, counted = _touches(graph)
    taken = take_over or {}
    main_of = list(range(len(needs)))
    if merge:
        main_of = _lead(_follow(needs, set(maker.values())), needs, touches, maker, taken)
    main = sorted(set(main_of))
    number_of = {op: unit for unit, op in enumerate(main)}
    unit_of = [number_of[op] for op in main_of]
    units: list[list[int]] = [[] for _ in main]
    for op, unit in enumerate(unit_of):
        units[unit].append(op)
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
    over = of_units([[number[name] for name in taken.get(op, ())] for op in range(len(needs))])
    size = np.array([counted[name] for name in names], np.int64)
    arrays = OrderArrays(
        *listed(before),
        *listed(turned(before, len(units))),
        *listed(made),
        *listed(used),
        *listed(over),
        *listed(turned(used, len(names))),
        maker=np.array([unit_of[maker[name]] for name in names], np.int64),
        size=size,
        kept=np.array([name in returned for name in names], np.bool_),
        out=np.array([size[own].sum() for own in made], np.int64),
    )
    return OrderProblem(graph, tuple(map(tuple, units)), tuple(main), names, arrays)


def peak_in_order(graph: Graph) -> int:
    """The live bytes of `graph` at the worst step, one op a step as they stand; inputs and weights do not
    count."""
    return _peak(graph, scratch=False)


def _peak(graph: Graph, scratch: bool) -> int:
    """Return the live bytes at the worst step, with `scratch` those with what the op there holds inside."""
    whole = whole_ops(graph, scratch=scratch)
    live = order_problem(whole, merge=False).live(range(len(whole.ops)))
    if scratch:
        live = live + np.array([op.workspace.shared for op in whole.ops], np.int64)
    return int(live.max(initial=0))


def whole_ops(graph: Graph, *, scratch: bool = False) -> Graph:
    """Return `graph` with each op that others are inside of as one op, which holds what they hold: in a
    storage that it makes, or with `scratch` as its workspace."""
    inside = {}
    for region in regions(graph):
        branches = [branch_graph(graph, region, branch) for branch in region.branches]
        call = graph.ops[region.call]
        inside[call.name] = max(bytes_inside(graph, call, each, _peak(each, scratch)) for each in branches)
    return contract(graph, inside, scratch=scratch) if inside else graph


def bytes_inside(graph: Graph, call: Op, branch: Graph, peak: int) -> int:
    """Return what a branch of `call` with this peak of live bytes holds next to the results of `call`: within
    the branch, or at its end."""
    results = {tensor.storage for tensor in graph.tensors if tensor.name in call.outputs}
    made = sum(each.nbytes for each in graph.storages if each.name in results)
    held = (each.nbytes for each in branch.storages if each.role is Role.OUTPUT and each.name not in results)
    return max(peak - made, sum(held))


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


def _follow(needs: Sequence[Sequence[int]], makers: set[int]) -> list[int]:
    """The op that each op follows, or itself: one that makes nothing follows the only one it waits for."""
    main = list(range(len(needs)))
    for index, before in enumerate(needs):
        mains = {main[other] for other in before}
        if index not in makers and len(mains) == 1:
            main[index] = mains.pop()
    return main


def _lead(
    main: list[int],
    needs: Sequence[Sequence[int]],
    touches: Sequence[Sequence[str]],
    maker: Mapping[str, int],
    taken: Container[int],
) -> list[int]:
    """`main`, with those that touch nothing but what they make themselves before the only ones that wait for
    them, as long as all they make is needed there. None leads to an op that may write over an input."""
    members: dict[int, list[int]] = {}
    users: dict[int, set[int]] = {}
    for index, first in enumerate(main):
        members.setdefault(first, []).append(index)
        for other in needs[index]:
            users.setdefault(main[other], set()).add(first)
    for unit in list(members):
        ops, later = members[unit], users.get(unit, set()) - {unit}
        touched = {name for op in ops for name in touches[op]}
        if len(later) != 1 or any(maker[name] not in ops for name in touched):
            continue
        (next_one,) = later
        there = {name for op in members[next_one] for name in touches[op]}
        # What it writes over stands for all that a unit makes.
        if touched <= there and next_one not in taken:
            members[next_one] = members.pop(unit) + members[next_one]
            for early in users.values():
                if unit in early:
                    early.remove(unit)
                    early.add(next_one)
    moved = list(main)
    for unit, ops in members.items():
        for op in ops:
            moved[op] = unit
    return moved


def listed(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Where each list begins, and all of them one behind the other."""
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return starts, np.fromiter((item for own in lists for item in own), np.int64, int(starts[-1]))


def turned(lists: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """In which lists each of the numbers below `count` stands."""
    turned: list[list[int]] = [[] for _ in range(count)]
    for place, own in enumerate(lists):
        for item in own:
            turned[item].append(place)
    return turned
