"""Ops run again until the arena fits, in the least time found, with what any schedule would take at least."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.fitting.plan_again import NewLimits, PlanOf
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.rewrites.recompute.recomputed import AgainGraph, Recomputation

TARGETS = 6
"""Live bytes that are tried, to meet an arena: writes in place need fewer than the search knows of, and
alignment more."""
NEARER = 6
"""Live bytes that are tried where an arena cannot be met, each half as far from it: 2 % are left then."""
ALIKE = 0.01
"""Of an arena that misses the capacity: so much more is not worth the time that it takes to have it less."""
POINTS = 12
"""Capacities of a curve, evenly spaced."""
SHALLOWEST = 0.02
"""Of the bytes that the first schedule needs: a point of a curve that saves less is left out."""

_Point = TypeVar("_Point")


@dataclass(frozen=True, slots=True)
class StageTime:
    """All ops take `seconds` once, which are `of` something, and what runs again `extra_seconds` more. Every
    schedule in as many bytes takes at least `bound_seconds` more; None: no schedule has so few."""

    of: str
    seconds: float
    extra_seconds: float
    bound_seconds: float | None

    @property
    def extra(self) -> float:
        """As a share of what all ops take once."""
        return self.extra_seconds / self.seconds if self.seconds else 0.0

    @property
    def bound(self) -> float | None:
        """As a share of what all ops take once."""
        if self.bound_seconds is None:
            return None
        return self.bound_seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class CurvePoint:
    """A schedule of `graph` in an arena of `plan`, with its `time`."""

    graph: Graph
    plan: Plan
    time: StageTime


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Every schedule takes again at least `seconds` in `nbytes` bytes, and in any other number of bytes
    `price` s less for each that there is more: what a proof says of one, it says of all."""

    nbytes: int
    seconds: float
    price: float

    def at(self, nbytes: int | float) -> float:
        """The least seconds in `nbytes`; below 0 where nothing is proved."""
        return self.seconds - self.price * (nbytes - self.nbytes)


@dataclass(frozen=True, slots=True)
class Curve:
    """`points` with fewer and fewer bytes that take longer and longer, the plan before first. No schedule has
    an arena of fewer than `least_bytes`, however long it takes. `lines` are proved of every schedule, beside
    what is proved at the points."""

    points: tuple[CurvePoint, ...]
    least_bytes: int
    lines: tuple[TimeLine, ...] = ()

    def within(self, arena: int) -> CurvePoint | None:
        """The quickest with an arena of at most `arena` bytes; None where there is none."""
        fitting = (point for point in self.points if point.plan.arena_bytes <= arena)
        return min(fitting, key=lambda point: point.time.extra_seconds, default=None)

    def least_seconds(self, arena: int) -> float:
        """What every schedule in an arena of at most `arena` bytes takes again at least. A point's own bound
        is of its arena, and holds for as small ones alone."""
        larger = (point.time for point in self.points if point.plan.arena_bytes >= arena)
        return max(
            [0.0, *(time.bound_seconds or 0.0 for time in larger), *(line.at(arena) for line in self.lines)]
        )


def nearer(
    low: int, high: int, limits: NewLimits, within: Callable[[int], tuple[_Point, int] | None]
) -> Iterator[_Point]:
    """Schedules with fewer and fewer live bytes than `high`, where none of as few as `low` was found.
    `within` gives the one that it finds for a number of live bytes, with those that it has."""
    for _ in range(NEARER):
        target = (low + high) // 2
        if limits().stopped or target <= low:
            return
        found = within(target)
        if found is None:
            low = target
        else:
            point, high = found
            yield point


class Recomputing:
    """The stage of `graphs`, one graph in several orders of its ops, for one arena after another. `planned`
    is the plan before, of the first of them; others are planned by `plan_of`, and by `plan_as_is` where the
    order that they have has to stay. That order with the fewest bytes is seldom the one in which the least
    has to run again. `redraws`, `reorders`: as of `Recomputation`."""

    def __init__(
        self,
        graphs: Sequence[Graph],
        planned: Plan,
        times: OpTimes,
        plan_of: PlanOf,
        plan_as_is: PlanOf,
        limits: NewLimits,
        in_place: bool,
        redraws: bool = False,
        reorders: bool = False,
    ) -> None:
        self.graphs, self.graph, self.planned, self.times = graphs, graphs[0], planned, times
        self.plan_of, self.plan_as_is, self.limits = plan_of, plan_as_is, limits
        # Where it may draw again, it need not.
        self.all = [
            Recomputation(each, times.of_ops(each), in_place=in_place, redraws=again, reorders=reorders)
            for again in ([True, False] if redraws else [False])
            for each in graphs
        ]
        self.again = self.all[0]
        """For bounds: these are of all orders."""
        self.smallest: AgainGraph | None = None
        """Of the schedules found so far the one with the fewest live bytes."""

    def fit(self, arena: int) -> CurvePoint:
        """The quickest schedule found with an arena of at most `arena` bytes; where none was found, the
        quickest of the smallest arenas of those that are nearer and nearer to it."""
        bound = self.again.bound(arena, self.limits()).seconds
        found = [CurvePoint(self.graph, self.planned, self._time(0.0, bound))]
        if bound is not None:
            found += self._towards(arena, bound)
        high = min(each.plan.arena_bytes for each in found)
        if high > arena:
            found += nearer(arena, high, self.limits, partial(self._nearer, bound=bound))
            if self.smallest is not None and not self.limits().stopped:
                found += [self._planned(each, bound) for each in self.each_within(self.smallest.peak_bytes)]
        least = min(each.plan.arena_bytes for each in found)
        most = arena if least <= arena else (1 + ALIKE) * least
        small = [each for each in found if each.plan.arena_bytes <= most]
        return min(small, key=lambda each: each.time.extra_seconds)

    def _nearer(self, target: int, bound: float | None) -> tuple[CurvePoint, int] | None:
        found = self.within(target, rough=True)
        return None if found is None else (self._planned(found, bound), found.peak_bytes)

    def _towards(self, arena: int, bound: float) -> Iterator[CurvePoint]:
        # As many live bytes more as the plan before saves by writes in place.
        low, high = 0, arena + max(0, self.again.peak_bytes - self.planned.arena_bytes)
        target = high
        for _ in range(TARGETS):
            limits = self.limits()
            if limits.stopped or target <= low:
                return
            found = self.within(target)
            if found is None:
                low = target
            else:
                point = self._planned(found, bound)
                yield point
                over = point.plan.arena_bytes - arena
                if over <= 0:
                    low = target
                else:
                    high = min(target, found.peak_bytes) - over
            target = high if high > low and target > high else (low + high) // 2

    def within(self, live: int, rough: bool = False) -> AgainGraph | None:
        """The quickest schedule of all orders with at most `live` bytes live; None where there is none.
        `rough`: as of `Recomputation.within`."""
        return min(self.each_within(live, rough), key=lambda each: each.extra_seconds, default=None)

    def each_within(self, live: int, rough: bool = False) -> list[AgainGraph]:
        """The quickest schedule of each order with at most `live` bytes live, where there is one."""
        tried = [each.within(live, self.limits(), rough) for each in self.all]
        found = [each for each in tried if each]
        known = [*found, self.smallest] if self.smallest else found
        self.smallest = min(known, key=lambda each: each.peak_bytes, default=None)
        return found

    def _planned(self, found: AgainGraph, bound: float | None) -> CurvePoint:
        graph, plan = self.plan_of(found.graph)
        return CurvePoint(graph, plan, self._time(found.extra_seconds, bound))

    def _time(self, extra: float, bound: float | None) -> StageTime:
        return StageTime(self.times.of, self.again.seconds, extra, bound)

    def curve(self, watch: Callable[[CurvePoint], None] = lambda point: None) -> Curve:
        """Schedules from the plan before to the smallest that was found; `watch` hears of each. Each has what
        every schedule in an arena like its own takes at least."""
        least = self.again.least_bytes(self.limits())
        points = [CurvePoint(self.graph, self.planned, self._time(0.0, 0.0))]
        watch(points[0])
        for part in range(POINTS - 1, 0, -1):
            limits, target = self.limits(), self.again.peak_bytes * part // POINTS
            if limits.stopped or target < least:
                break
            found = self.within(target)
            if found is None:
                break
            graph, plan = self.plan_of(found.graph)
            if plan.arena_bytes > (1 - SHALLOWEST) * points[-1].plan.arena_bytes:
                continue
            bound = self.again.bound(plan.arena_bytes, self.limits()).seconds
            points.append(CurvePoint(graph, plan, self._time(found.extra_seconds, bound)))
            watch(points[-1])
        return Curve(tuple(points), least)
