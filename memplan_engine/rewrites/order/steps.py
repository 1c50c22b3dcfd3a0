"""An order taken step by step, as a person does: which ops are ready, what each would allocate and free,
and the set of ops at which every order must hold what the bound says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memplan_engine.kernels.order.flow import ENDLESS, push_flow
from memplan_engine.rewrites.order.cut_bound import Cuts
from memplan_engine.rewrites.order.order_problem import OrderProblem


@dataclass(frozen=True, slots=True)
class ReadyUnit:
    """A unit that may run next: it allocates and then frees so many bytes; `live` are there while it runs,
    `left` after it."""

    unit: int
    allocates: int
    frees: int
    live: int

    @property
    def left(self) -> int:
        """What stays."""
        return self.live - self.frees


@dataclass(frozen=True, slots=True)
class CrossingSet:
    """The closed set of `units` before `unit` that leaves the fewest bytes live: those of the storages that
    are made in it and touched outside, or returned. With what `unit` itself makes, `makes`, they are
    `needed`: no order has less while it runs."""

    unit: int
    units: tuple[int, ...]
    crossing: tuple[int, ...]
    makes: int
    needed: int


def ready_units(problem: OrderProblem, order: Sequence[int], live: int) -> tuple[ReadyUnit, ...]:
    """What may run after `order`, which left `live` bytes, by number; none writes over an input. O(size of
    the problem)."""
    arrays, done = problem.arrays, set(order)
    ready = []
    for unit in range(len(problem.units)):
        before = arrays.before[arrays.before_of[unit] : arrays.before_of[unit + 1]].tolist()
        if unit not in done and done.issuperset(before):
            allocates = int(arrays.out[unit])
            ready.append(ReadyUnit(unit, allocates, _freed(problem, unit, done), live + allocates))
    return tuple(ready)


def steps_of(problem: OrderProblem, order: Sequence[int]) -> tuple[ReadyUnit, ...]:
    """Each step of `order`, or of its beginning."""
    steps: list[ReadyUnit] = []
    done: set[int] = set()
    live = 0
    for unit in order:
        allocates = int(problem.arrays.out[unit])
        step = ReadyUnit(unit, allocates, _freed(problem, unit, done), live + allocates)
        steps.append(step)
        live = step.left
        done.add(unit)
    return tuple(steps)


def _freed(problem: OrderProblem, unit: int, done: set[int]) -> int:
    """The bytes that nobody touches any more once `unit` has run after those that are `done`."""
    o, after = problem.arrays, done | {unit}
    used = o.used[o.used_of[unit] : o.used_of[unit + 1]].tolist()
    made = o.made[o.made_of[unit] : o.made_of[unit + 1]].tolist()
    return sum(
        int(o.size[each])
        for each in (*used, *made)
        if not o.kept[each] and after.issuperset(o.users[o.users_of[each] : o.users_of[each + 1]].tolist())
    )


def crossing_set(problem: OrderProblem, unit: int) -> CrossingSet:
    """The cut that bounds what is live while `unit` runs, where it writes over nothing: what a maximum flow
    reaches without passing a full arc is the smallest least set."""
    cuts, count = Cuts(problem), len(problem.units)
    inside, outside = cuts.sides(unit)
    network = cuts.network
    flow = push_flow(network, inside, outside, ENDLESS)
    reached = inside.copy()
    stack = inside.nonzero()[0].tolist()
    while stack:
        node = stack.pop()
        for arc in range(int(network.arcs_of[node]), int(network.arcs_of[node + 1])):
            head = int(network.head[arc])
            if network.room[arc] > 0 and not reached[head]:
                reached[head] = True
                stack.append(head)
    o = problem.arrays
    units = tuple(reached[:count].nonzero()[0].tolist())
    within = set(units)
    crossing = tuple(
        each
        for each in range(len(o.size))
        if int(o.maker[each]) in within
        and (o.kept[each] or not within.issuperset(o.users[o.users_of[each] : o.users_of[each + 1]].tolist()))
    )
    makes = int(o.out[unit])
    return CrossingSet(unit, units, crossing, makes, int(flow) + makes)
