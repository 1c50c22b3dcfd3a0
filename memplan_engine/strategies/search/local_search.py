"""Anytime improvement for large problems: the best starts, then repair by ejection below a ceiling."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from memplan_engine.bounds import lower_bound
from memplan_engine.kernels.search.repair import RepairLimits
from memplan_engine.problem import Ints, Problem, select
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.order_fit import (
    NO_LIMIT,
    OTHERS,
    STARTS,
    Try,
    is_plain,
    place_by,
    place_quickly,
)
from memplan_engine.strategies.constructive.orders import (
    BY_START,
    FitRule,
    Order,
    Timeline,
    conflicts,
    make_timeline,
)
from memplan_engine.strategies.search.moves import (
    EjectionSearch,
    held_at,
    make_ejection_search,
    pack_windows,
    peak_window,
)
from memplan_engine.strategies.search.search_params import DEFAULTS, SearchParams
from memplan_engine.strategies.search.urgency_fit import Skylines, fullness, placements

CONTACT = "urgency × contact fit"
SKYLINE = "urgency × skyline"
PEAK_FIRST = "peak first, {}"
REPAIRED = ", repaired"
PACKED = ", repaired, windows packed"


@dataclass(frozen=True, slots=True)
class Search:
    """A few strong orders × fits, each repaired below the bound; then rounds of repair, below the bound and
    below ceilings between it and the best arena, until its limits; in between the rest of the portfolio.

    `iterations` limits the moves: the same number gives the same result each time, for one seed. Without it
    and without a time limit the search ends when it has found nothing better for a while. It stops at once
    when the arena meets `lower_bound`, or fits into `capacity` (bytes). Unless limits end it before, it is
    never worse than any order × fit.
    """

    iterations: int | None = None
    capacity: int | None = None
    params: SearchParams = field(default=DEFAULTS, repr=False)

    anytime: ClassVar[bool] = True
    name: ClassVar[str] = "search"
    description: ClassVar[str] = (
        "the best orders × fits, then repair by ejection, until the lower bound is met"
    )
    source: ClassVar[str] = "memplan; guided ejection after Nagata and Bräysy (2009)"

    def with_capacity(self, capacity: int | None) -> Search:
        """The same, which ends when the arena fits into `capacity` bytes."""
        return replace(self, capacity=capacity)

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """The best placement found; `found_by` names the start and whether it was repaired."""
        spent = limits.stopped
        limits.prove(proved := lower_bound(problem))
        first = place_quickly(problem, limits, spent)
        target = max(proved.nbytes, self.capacity or 0)
        search = LocalSearch(make_timeline(problem), limits, target, self.iterations, self.params)
        return search.go_on(first, limits)


@dataclass(slots=True, eq=False)
class RepairStart:
    """A placement of most buffers below the bound: what it began as, and where its buffers lie now."""

    name: str
    offsets: Ints


@dataclass(slots=True, eq=False)
class LocalSearch:
    """One search: the best so far, and the starts from which it goes on.

    It may run under one set of limits after the other: what was tried at the beginning is not tried again."""

    timeline: Timeline
    limits: SolveLimits
    bound: int
    iterations: int | None
    params: SearchParams = DEFAULTS
    best: Placement = field(init=False)
    arena: int = NO_LIMIT
    moves: int = 0
    turn: int = 0
    windows: int = 0
    share: float = 0.5
    better_at: int = 0
    ejection: EjectionSearch | None = None
    skylines: Skylines | None = None
    starts: list[RepairStart] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    ordered: dict[str, Ints] = field(default_factory=dict)

    def go_on(self, first: Placement, limits: SolveLimits) -> Placement:
        """Search from `first` or something better within `limits`; the best so far."""
        self.limits = limits
        self.consider(first.offsets, first.found_by)
        self.run()
        return self.best

    def run(self) -> None:
        """Search until there is nothing left to do, or nothing left to do it with."""
        self.try_by_start()
        wide = self.lower_what_is_wide()
        self.repair_starts(STARTS[:2])
        if self.contact_pays(self.params.soon_pairs):
            self.repair_by_contact()
        self.pack_peak_first()
        if wide:
            self.lower_in_steps()
        early = self.contact_pays(self.params.quick_pairs)
        if early:
            self.repair_by_contact()
        self.repair_starts(STARTS[2:])
        self.pack_peak_first()
        if not early:
            self.repair_by_contact()
        self.repair_in_rounds(self.params.first_rounds)
        self.try_the_others()
        self.repair_in_rounds()

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do, or nothing left to do it with."""
        return self.limits.stopped or self.arena <= self.bound or self.moves_left == 0

    @property
    def moves_left(self) -> int:
        """How many moves may still be made."""
        left = self.limits.nodes_left
        if self.iterations is not None:
            return min(left, max(0, self.iterations - self.moves))
        if self.limits.seconds is not None or self.limits.counts_nodes:
            return left
        params, n = self.params, len(self.timeline.problem)
        patient = params.patient_moves_at_first + params.patient_moves_per_buffer * n
        return max(0, self.better_at + min(params.patient_moves, patient) - self.moves)

    def consider(self, offsets: Ints | None, found_by: str) -> None:
        """Keep and report `offsets` if they are better than the best."""
        if offsets is None:
            return
        placement = Placement(offsets, found_by)
        arena = placement.arena_bytes(self.timeline.problem)
        if arena < self.arena:
            self.best, self.arena, self.better_at = placement, arena, self.moves
            self.limits.report(placement, self.timeline.problem)

    def order(self, order: Order) -> Ints:
        """The buffers in `order`, worked out once."""
        if order.name not in self.ordered:
            self.ordered[order.name] = order(self.timeline)
        return self.ordered[order.name]

    def try_by_start(self) -> None:
        """By far the quickest placement: however early the limits end it, this leaves more than no reuse."""
        # What keeps holes is quick enough to be waited for, unless they were reached before we began.
        limits = SolveLimits() if is_plain(self.timeline.problem) and not self.limits.stopped else self.limits
        if self.arena > self.bound:
            order = self.order(BY_START)
            self.consider(
                place_by(self.timeline, order, FitRule.FIRST, limits), f"start × {FitRule.FIRST} fit"
            )

    def repair_starts(self, starts: tuple[Try, ...]) -> None:
        """Place by each of `starts`, however high it gets, and repair what is above the bound."""
        for order, fit in starts:
            if self.limits.stopped or self.arena <= self.bound:
                return
            name = f"{order.name} × {fit} fit"
            if name in self.tried:
                continue
            offsets = place_by(self.timeline, self.order(order), fit, self.limits)
            if offsets is None:
                return
            self.tried.add(name)
            self.consider(offsets, name)
            self.repair_first(name, offsets)

    def lower_what_is_wide(self) -> bool:
        """Where most steps are nearly full and even a skyline is far above the bound: get near it step by
        step. Whether that was so."""
        if (
            self.arena <= self.bound * self.params.far_off
            or self.pairs > self.params.quick_pairs
            or fullness(self.timeline) < self.params.full
        ):
            return False
        self.try_skylines(1)
        if self.arena <= self.bound * self.params.wide:
            return False
        near = int(self.bound * self.params.near)
        self.try_skylines(near=near)
        self.lower_in_steps(near)
        return True

    def try_skylines(self, rounds: int | None = None, near: int = 0) -> None:
        """So many skylines more, or as many as half a second allows, until the arena is `near`."""
        if not is_plain(self.timeline.problem):
            return
        self.skylines = self.skylines or Skylines(self.timeline, self.bound, self.params)
        affordable = self.params.skyline_pairs // (
            self.pairs + self.params.pairs_per_buffer * len(self.timeline.problem) + 1
        )
        most = self.params.most_skylines if rounds is None else rounds
        for _ in range(max(1, min(most, affordable))):
            if self.over or self.arena <= near:
                return
            self.consider(self.skylines.next(self.limits), SKYLINE)

    def lower_in_steps(self, near: int = 0) -> None:
        """Repair the best below ceilings under its arena until that is `near`: half the way to the bound, or
        what succeeds of it."""
        step, turn = 0.5, 0
        while not self.over and self.arena > near and step >= self.params.smallest_step:
            before, turn = self.arena, turn + 1
            ceiling = self.arena - max(1, int((self.arena - self.bound) * step))
            self.repair(self.best.offsets, ceiling, turn, self.origin, brief=True)
            step = step / 2 if self.arena == before else min(0.5, 2 * step)

    @property
    def origin(self) -> str:
        """What the best has begun as."""
        return self.best.found_by.removesuffix(PACKED).removesuffix(REPAIRED)

    @property
    def pairs(self) -> int:
        """How many pairs of buffers are live together."""
        return int(conflicts(self.timeline.problem).sum()) // 2

    def contact_pays(self, most: int) -> bool:
        """Whether contact fit comes before what is slower: the quick starts are far off, and it is quick,
        with no more than `most` pairs."""
        return self.arena > self.bound * self.params.far_off and self.pairs <= most

    def repair_by_contact(self) -> None:
        """Place what is busiest first where it touches most, and repair each placement that is the best so
        far."""
        settled = self.limits.stopped or self.arena <= self.bound
        if settled or CONTACT in self.tried or not is_plain(self.timeline.problem):
            return
        size, least = self.timeline.problem.size, NO_LIMIT
        for offsets in placements(self.timeline, self.bound, self.limits, self.params):
            self.consider(offsets, CONTACT)
            outside = int(size[offsets + size > self.bound].sum())
            if outside < least:
                self.repair_first(CONTACT, offsets, len(self.params.weights))
            least = min(least, outside)
            if self.over:
                return
        if not self.limits.stopped:
            self.tried.add(CONTACT)

    def pack_peak_first(self) -> None:
        """Pack what is live around the peak by a search of its own, then the rest around it, and repair
        what is above the arena of that window."""
        problem = self.timeline.problem
        if self.over or len(problem) < self.params.peak_buffers or not is_plain(problem):
            return
        turn, self.windows = self.windows, self.windows + 1
        rows = peak_window(self.timeline, self.params.peak_shares[turn % len(self.params.peak_shares)])
        if 2 * len(rows) > len(problem):
            return
        inside = self.pack_window(rows, turn)
        if inside.arena >= self.arena or self.limits.stopped:
            return
        least, start = NO_LIMIT, None
        around = held_at(problem, rows, inside.best.offsets)
        for order, fit in STARTS:
            offsets = place_by(around, self.order(order), fit, self.limits)
            if offsets is None:
                return
            name = PEAK_FIRST.format(f"{order.name} × {fit} fit")
            self.consider(offsets, name)
            outside = int(problem.size[offsets + problem.size > inside.arena].sum())
            if outside < least:
                least, start = outside, RepairStart(name, offsets)
            if not least:
                return
        if start and not self.over:
            self.repair(start.offsets, inside.arena, turn, start.name)

    def pack_window(self, rows: Ints, turn: int) -> LocalSearch:
        """A search of the buffers `rows` alone, down to the bound or to the limit on its moves."""
        moves = min(self.moves_left, self.params.peak_moves * (2 + turn) // 2)
        # What it finds is no placement of the problem, and so nothing to report.
        limits = SolveLimits(seed=self.limits.seed + turn, stop=self.limits.stop, counter=self.limits.counter)
        inside = LocalSearch(
            make_timeline(select(self.timeline.problem, rows)), limits, self.bound, moves, self.params
        )
        inside.run()
        self.moves += inside.moves
        return inside

    def repair_first(self, name: str, offsets: Ints, turns: int = 1) -> None:
        """Repair `offsets` for some turns now and again later, if few enough are above the bound."""
        above = int((offsets + self.timeline.problem.size > self.bound).sum())
        if above <= self.params.most_above and not self.over:
            self.starts.append(RepairStart(name, offsets))
            for turn in range(turns):
                if not self.over:
                    self.repair_again(self.starts[-1], turn)

    def try_the_others(self) -> None:
        """The rest of the portfolio, each given up as soon as it passes the best arena."""
        for order, fit in OTHERS:
            if self.limits.stopped or self.arena <= self.bound:
                return
            offsets = place_by(self.timeline, self.order(order), fit, self.limits, limit=self.arena - 1)
            self.consider(offsets, f"{order.name} × {fit} fit")

    def repair_in_rounds(self, rounds: int | None = None) -> None:
        """Of six rounds, two go on with a start, one begins at the peak again, and three repair the best
        below a ceiling between the bound and its arena, which comes closer when it was too low."""
        while not self.over and (rounds is None or self.turn < rounds):
            turn, self.turn = self.turn, self.turn + 1
            if turn % 6 == 4:
                self.pack_peak_first()
            elif turn % 3 == 2 and self.starts:
                self.repair_again(self.starts[turn // 3 % len(self.starts)], turn // 3)
            else:
                ceiling = self.bound + int((self.arena - 1 - self.bound) * self.share)
                self.repair(self.best.offsets, ceiling, turn - turn // 3, self.origin)
                met = self.arena <= ceiling or self.share > 0.99
                self.share = 0.5 if met else (1 + self.share) / 2

    def repair_again(self, start: RepairStart, turn: int) -> None:
        """Go on below the bound from where `start` has come to."""
        start.offsets = self.repair(start.offsets, self.bound, turn, start.name).offsets

    def repair(
        self, offsets: Ints, ceiling: int, turn: int, name: str, brief: bool = False
    ) -> EjectionSearch:
        """Repair `offsets` below `ceiling` for one round, and report whatever is better on the way.

        If `brief`, for a small part of a round, and without windows packed exactly."""
        params = self.params
        ejection = self.ejection = self.ejection or make_ejection_search(self.timeline, params.repair)
        least = max(params.effort, params.effort_per_buffer * len(offsets))
        doubled = least << min(turn // params.rounds_each, params.doublings)
        effort = min(doubled, max(params.most_effort, least))
        effort = effort // params.brief if brief else effort
        allowed = RepairLimits(self.moves_left, effort, params.patiences[turn % len(params.patiences)])
        weights = params.weights[turn % len(params.weights)]
        ejection.begin(offsets, ceiling, *weights)
        before = self.moves
        while ejection.out and self.arena > ceiling:
            seed = (self.limits.seed * 1_000_003 + self.moves) % 2**32
            better = ejection.repair(ceiling, self.arena, allowed, seed, self.limits)
            self.moves = before + ejection.moves
            self.consider(better, name + REPAIRED)
            if better is None:
                break
        if not ejection.out:
            self.consider(ejection.offsets, name + REPAIRED)
        elif self.arena > ceiling and not brief:
            seed = (self.limits.seed + self.moves) % 2**32
            packed = pack_windows(self.timeline.problem, ejection, ceiling, seed, self.limits, params.windows)
            if packed is not None and (packed >= 0).all():
                self.consider(packed, name + PACKED)
            elif packed is not None:
                ejection.begin(packed, ceiling, *weights)
        return ejection
