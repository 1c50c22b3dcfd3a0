"""Ops of a graph run again so that its live bytes keep to a capacity, with a bound on the time that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memplan_engine.errors import MemplanError
from memplan_engine.graph import Graph
from memplan_engine.op_kinds.generators import is_of_generator
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.recompute.bound_search import BoundSearch
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from memplan_engine.rewrites.recompute.check_time_proof import check_time_proof
from memplan_engine.rewrites.recompute.other_orders import try_other_orders
from memplan_engine.rewrites.recompute.recompute_problem import nanoseconds_of, recompute_problem
from memplan_engine.rewrites.recompute.recomputed_graph import recomputed_graph
from memplan_engine.rewrites.recompute.schedules import Schedule, ScheduleSearch
from memplan_engine.rewrites.recompute.time_bound import TimeCuts
from memplan_engine.rewrites.recompute.time_proof import TimeProof
from memplan_engine.strategies.base import SolveLimits

SECONDS = 10.0
"""Of a search where no limit is given."""
STATE_TRIES = 4
"""Searches for one capacity, where states of the generator need bytes that the search knows nothing of."""


@dataclass(frozen=True, slots=True, eq=False)
class Recomputed:
    """`graph` runs ops again for `extra_seconds` of `seconds` that all ops take once, and has at most
    `peak_bytes` live; None where no such schedule was found. `bound_seconds` is what every schedule within
    `capacity` runs again at least, by `proof`, for these times; None where none keeps to it."""

    capacity: int
    seconds: float
    graph: Graph | None
    peak_bytes: int
    extra_seconds: float
    bound_seconds: float | None
    proof: TimeProof

    @property
    def is_impossible(self) -> bool:
        """Whether it is proved that no schedule keeps to the capacity, however long it takes."""
        return self.bound_seconds is None


@dataclass(frozen=True, slots=True, eq=False)
class AgainGraph:
    """`graph` runs ops again, for `extra_seconds` in all, and has at most `peak_bytes` live."""

    graph: Graph
    peak_bytes: int
    extra_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class TimeBound:
    """Every schedule within a capacity runs ops again for at least `seconds`, by `proof`; None where none
    keeps to it, however long it takes."""

    seconds: float | None
    proof: TimeProof


class Recomputation:
    """A graph, whose ops take `seconds` each, within one capacity after another: what was found for one is
    kept for the others, so that a larger one never takes longer. `in_place`: bounds hold for writes in place
    and concatenations without copies, too. `redraws`: random numbers may be drawn again, from the state that
    the generator had the first time, which is kept, in GENERATOR_BYTES; else what was drawn is. `reorders`:
    ops may run in another order for the first time, too; bounds hold for all orders in any case.

    Raises
    ------
    InputError: as `recompute_problem`. Methods: MemplanError, a schedule or proof that a check refuses.
    """

    def __init__(
        self,
        graph: Graph,
        seconds: Sequence[float],
        *,
        in_place: bool = False,
        redraws: bool = False,
        reorders: bool = True,
    ) -> None:
        self.graph, self.in_place, self.redraws, self.reorders = graph, in_place, redraws, reorders
        self.nanoseconds: list[int] = nanoseconds_of(graph, seconds).tolist()
        """Of the ops of `graph`, in their order."""
        self.problem = recompute_problem(graph, seconds, in_place=in_place, redraws=redraws)
        self.search = ScheduleSearch(self.problem)
        self.bounds = BoundSearch(TimeCuts(self.problem), self.search.steps)
        live = replace(self.problem, sure=self.problem.arrays.size, own=self.problem.arrays.out)
        self._live_bounds = BoundSearch(TimeCuts(live), self.search.steps) if in_place else self.bounds
        self._with_states: list[AgainGraph] = []

    @property
    def seconds(self) -> float:
        """What all ops take once."""
        return self.problem.total / 1e9

    @property
    def peak_bytes(self) -> int:
        """Live bytes at the worst step while nothing runs again."""
        return self.search.found[0].nbytes

    def bound(self, capacity: int, limits: SolveLimits) -> TimeBound:
        """What every schedule within `capacity` live bytes runs again at least, checked."""
        with limits.running():
            cut, impossible = self.bounds.bound(capacity, limits)
        least = cut.least_extra(capacity)
        # That nothing has to run again needs no proof.
        proof = self.bounds.cuts.proof(cut.at, cut.price if least else 0.0)
        self._check(proof, capacity, least)
        return TimeBound(None if impossible else least / 1e9, proof)

    def least_bytes(self, limits: SolveLimits) -> int:
        """Live bytes that every schedule needs, however long it takes, checked."""
        with limits.running():
            cut, least = self.bounds.least_bytes(limits)
        if least:
            self._check(self.bounds.cuts.proof(cut.at, cut.price), least - 1, self.problem.total)
        return least

    def within(self, capacity: int, limits: SolveLimits, rough: bool = False) -> AgainGraph | None:
        """The graph of the schedule within `capacity` live bytes that runs least again, checked; None where
        none was found. `rough`: the first that is found, in a third of the time or less."""
        room = capacity
        for _ in range(STATE_TRIES):
            with limits.running():
                self.search.within(room, limits, rough)
                if self.reorders and not rough:
                    try_other_orders(self.search, self._live_bounds, room, limits)
                schedule = self.search.best(room)
            if schedule is None:
                break
            found = self._checked(schedule)
            over = found.peak_bytes - capacity
            if over <= 0:
                self._with_states.append(found)
                break
            # By as much as the states of the generator need beside.
            room -= over
        fitting = [each for each in self._with_states if each.peak_bytes <= capacity]
        return min(fitting, key=lambda each: each.extra_seconds, default=None)

    def _checked(self, schedule: Schedule) -> AgainGraph:
        sequence = [op for index in schedule.sequence.tolist() for op in self.problem.members[index]]
        rewritten = recomputed_graph(self.graph, sequence)
        self._refuse(check_recompute(self.graph, rewritten))
        keeps_states = any(is_of_generator(op.kind) for op in rewritten.ops)
        nbytes = peak_in_order(rewritten) if keeps_states else schedule.nbytes
        return AgainGraph(rewritten, nbytes, schedule.extra / 1e9)

    def _check(self, proof: TimeProof, capacity: int, least: float) -> None:
        self._refuse(
            check_time_proof(
                self.graph,
                self.nanoseconds,
                proof,
                capacity,
                least,
                in_place=self.in_place,
                redraws=self.redraws,
            )
        )

    def _refuse(self, wrong: list[str]) -> None:
        if wrong:
            raise MemplanError(f"{self.graph.name}: recomputation: {wrong[0]}; please report this")


def recompute(
    graph: Graph,
    seconds: Sequence[float],
    capacity: int,
    limits: SolveLimits | None = None,
    *,
    redraws: bool = False,
) -> Recomputed:
    """`graph`, whose ops take `seconds` each, with at most `capacity` bytes live at once; inputs and weights
    do not count.

    Schedules and bound: minimum cuts with a price on bytes (`time_bound`). Both are checked by code that
    shares nothing with what made them. Ops that write over something or are there for an effect run once, and
    so do, without `redraws`, those that draw random numbers; nothing runs again once what it reads was
    written over.

    Raises
    ------
    InputError: not a time for each op. MemplanError: a schedule or proof that a check refuses.
    """
    limits = limits or SolveLimits(SECONDS)
    again = Recomputation(graph, seconds, redraws=redraws)
    bound = again.bound(capacity, limits)
    found = None if bound.seconds is None else again.within(capacity, limits)
    return Recomputed(
        capacity,
        again.seconds,
        found.graph if found else None,
        found.peak_bytes if found else 0,
        found.extra_seconds if found else 0.0,
        bound.seconds,
        bound.proof,
    )
