"""Results wait on the host, beside ops that run again, until the arena fits, in the least time found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memplan_engine.fitting.recompute_stage import Recomputing, StageTime, nearer
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.rewrites.offload.offload_bound import most_of_an_op, offload_bound
from memplan_engine.rewrites.offload.offloaded import Offloaded, offload
from memplan_engine.rewrites.recompute.recomputed import AgainGraph
from memplan_engine.rewrites.recompute.recomputed_graph import first_run
from memplan_engine.units import exact

SHARES = 4
"""In how many parts the bytes that are too many are shared between ops that run again and the host."""
HALVINGS = 2
"""Of the part in which the best share lies: an op's time is told from a copy's by then."""
TARGETS = 4
"""Live bytes that are tried, to meet an arena: copies leave holes in it."""
CLOSE = 0.02
"""Of the arena: what fits is left alone where no more of it is to be had."""


@dataclass(frozen=True, slots=True, eq=False)
class OffloadPoint:
    """A schedule of `graph` in an arena of `plan`, with its `time`, which copies `copied_bytes` to the host
    and as many back. `impossible` says which op alone needs more than the arena; "" where none does."""

    graph: Graph
    plan: Plan
    time: StageTime
    copied_bytes: int
    impossible: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A schedule, and what it takes beside running each op once, s."""

    offloaded: Offloaded
    extra_seconds: float


class Offloading:
    """The stage behind that of `recomputing`, whose searches it goes on with; ops run again where that
    `runs_again`."""

    def __init__(self, recomputing: Recomputing, runs_again: bool) -> None:
        self.recomputing, self.runs_again = recomputing, runs_again
        self.times, self.limits = recomputing.times, recomputing.limits
        self._known: dict[int, list[AgainGraph]] = {}
        """Schedules whose ops run again, as within so many bytes, of the shares tried."""
        self._thorough: set[int] = set()
        """Of these the bytes for which they were looked for thoroughly."""

    def fit(self, arena: int) -> OffloadPoint:
        """The quickest schedule found with an arena of at most `arena` bytes; where none was found, the
        smallest arena of those that are nearer and nearer to it."""
        again, planned = self.recomputing.again, self.recomputing.planned
        needed, op = most_of_an_op(again)
        impossible = f"{op} alone reads and makes {exact(needed)}" if needed > arena else ""
        bound = None if impossible else offload_bound(again, arena, self.bandwidth, self.limits())
        found = [OffloadPoint(self.recomputing.graph, planned, self._time(0.0, bound), 0, impossible)]
        if not impossible:
            found += self._towards(arena, bound)
        fitting = [each for each in found if each.plan.arena_bytes <= arena]
        if fitting:
            return min(fitting, key=lambda each: each.time.extra_seconds)
        high, low = min(each.plan.arena_bytes for each in found), max(arena, needed - 1)
        graphs = self._runs_most_again()

        def within(target: int) -> tuple[OffloadPoint, int] | None:
            best = self._moved(graphs, target)
            if best is None:
                return None
            return self._planned(best, bound, impossible), best.offloaded.peak_bytes

        found += nearer(low, high, self.limits, within)
        return min(found, key=lambda each: each.plan.arena_bytes)

    def _towards(self, arena: int, bound: float | None) -> Iterator[OffloadPoint]:
        again, planned = self.recomputing.again, self.recomputing.planned
        # As many live bytes more as the plan before saves by writes in place.
        target = arena + max(0, again.peak_bytes - planned.arena_bytes)
        low, high = 0, target + 1
        for _ in range(TARGETS):
            best = self._within(target)
            if best is None:
                return
            point = self._planned(best, bound)
            yield point
            left = arena - point.plan.arena_bytes
            if left < 0:
                high = target
            elif point.time.extra_seconds == 0:
                return
            else:
                low = target
            if high - low <= CLOSE * arena:
                return
            near = best.offloaded.peak_bytes + left
            target = near if low < near < high else (low + high) // 2

    def _planned(self, best: _Found, bound: float | None, impossible: str = "") -> OffloadPoint:
        # In the order that it has: the copies are timed for that.
        graph, plan = self.recomputing.plan_as_is(best.offloaded.graph)
        time = self._time(best.extra_seconds, bound)
        return OffloadPoint(graph, plan, time, best.offloaded.copied_bytes, impossible)

    @property
    def bandwidth(self) -> float:
        """Bytes a second in each direction."""
        assert self.times.host_bandwidth is not None
        return self.times.host_bandwidth

    def _within(self, live: int) -> _Found | None:
        """The quickest schedule with at most `live` bytes live, of several shares of what runs again: these
        are looked for roughly, once, and the best of them thoroughly."""
        low, high = live, max(live, self.recomputing.again.peak_bytes)
        if not self.runs_again:
            return self._moved(self._as_it_is(), live)
        found: dict[int, _Found | None] = {}

        def quickness(capacity: int) -> float:
            if capacity not in found:
                found[capacity] = self._moved(self._runs_again(capacity), live)
            quickest = found[capacity]
            return float("inf") if quickest is None else quickest.extra_seconds

        if self._known:
            best = min(self._known, key=quickness)
        else:
            best = min([low + (high - low) * part // SHARES for part in range(SHARES + 1)], key=quickness)
            apart = (high - low) // (2 * SHARES)
            for _ in range(HALVINGS if quickness(best) > 0 else 0):
                near = [each for each in (best - apart, best + apart) if low <= each <= high]
                best = min([best, *near], key=quickness)
                apart //= 2
        if best < high and best not in self._thorough and quickness(best) > 0:
            self._thorough.add(best)
            self._known[best] += self.recomputing.each_within(best)
            found[best] = self._moved(self._known[best], live)
        fitting = [each for each in found.values() if each]
        return min(fitting, key=lambda each: each.extra_seconds, default=None)

    def _runs_again(self, capacity: int) -> list[AgainGraph]:
        """What is known to run again as within `capacity`."""
        if capacity not in self._known:
            as_it_is = capacity >= self.recomputing.again.peak_bytes
            self._known[capacity] = (
                self._as_it_is() if as_it_is else self.recomputing.each_within(capacity, rough=True)
            )
        return self._known[capacity]

    def _as_it_is(self) -> list[AgainGraph]:
        # One of each order, though it may be searched with and without drawing again.
        orders = self.recomputing.all[: len(self.recomputing.graphs)]
        return [AgainGraph(each.graph, each.peak_bytes, 0.0) for each in orders]

    def _runs_most_again(self) -> list[AgainGraph]:
        smallest = self.recomputing.smallest if self.runs_again else None
        return [smallest] if smallest else self._as_it_is()

    def _moved(self, schedules: Sequence[AgainGraph], live: int) -> _Found | None:
        """The quickest with at most `live` bytes live, of `schedules` with what their second runs take."""
        ways = []
        for each in schedules:
            limits = self.limits()
            if limits.stopped:
                break
            names = self.times.seconds
            # What is done to the generator takes next to no time.
            seconds = [names.get(first_run(op.name, names), 0.0) for op in each.graph.ops]
            moved = offload(each.graph, seconds, live, self.bandwidth, limits)
            if moved is not None:
                ways.append(_Found(moved, each.extra_seconds + moved.extra_seconds))
        return min(ways, key=lambda each: each.extra_seconds, default=None)

    def _time(self, extra: float, bound: float | None) -> StageTime:
        return StageTime(self.times.with_copies, self.recomputing.again.seconds, extra, bound)
