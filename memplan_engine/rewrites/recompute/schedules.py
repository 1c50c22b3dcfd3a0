"""Schedules within a capacity: what cuts let go of, put right by chance where it is too much or little."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise

import numpy as np

from memplan_engine.graph import Graph, Op, Role, Storage, Tensor
from memplan_engine.kernels.recompute.lazily import MOST_RUNS, improve, lazy_sequence, sequence_live, weigh
from memplan_engine.kernels.recompute.releases import release, repair, tighten
from memplan_engine.kernels.types import Flags
from memplan_engine.problem import Ints
from memplan_engine.rewrites.recompute.bound_search import BoundSearch, high_steps
from memplan_engine.rewrites.recompute.choices import ChoiceCuts
from memplan_engine.rewrites.recompute.recompute_problem import RecomputeProblem, recompute_problem
from memplan_engine.rewrites.recompute.time_bound import TimeCuts
from memplan_engine.strategies.base import SolveLimits

BOUNDARIES = 6
"""Of the steps of `high_steps` those before which a schedule lets go of what it makes again. Chosen by hand:
more win nothing on the steps of ResNet-50, ViT, BERT, GPT-2 and a U-Net."""
TILTS = (0.0, 0.01, 0.05, 0.2, 1.0, -0.05)
"""By how much bytes that are made late are dearer than early ones. Without a tilt all of many equal layers
change at one price; which one is best hangs on how unequal they are, so that several are tried."""
PRICES = 28
"""Prices that are tried for each, a factor of two apart, from what all ops take over all bytes on downwards
by CHEAPEST of them."""
CHEAPEST = 12
HALVINGS = 12
"""Of the factor between the two prices about the capacity. Chosen by hand."""
HOLDS = (1.0, 0.1, 0.02, 0.005)
"""What is made again is let go of once more where nothing reads it for so much of all steps: the less, the
fewer bytes and the more time. Chosen by hand."""
BEST = 2
"""Choices that are put right. Chosen by hand."""
TRIED_OPS = 2_000_000
"""Ops in the schedules that are weighed between two looks at the limits, a quarter of a second."""
LEAST_TRIES, MOST_TRIES = 200, 2_000
"""Changes by chance between two looks."""
REPAIRED_OPS = 100_000
"""Ops in the schedules that are repaired, all rounds together: a second or two. Chosen by hand."""
LEAST_ROUNDS, MOST_ROUNDS = 8, 512
"""Rounds of repairs, of large graphs and of small ones."""
QUIET = 4
"""A schedule with which that many rounds of tries win nothing is left alone. Chosen by hand."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The ops of the graph by index, as they run, some more than once; `nbytes` are live at the worst step,
    `extra` ns are run again."""

    sequence: Ints
    nbytes: int
    extra: int


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What is let go of before the step `at`, and once more where nothing reads it for `hold` steps; what the
    schedule has live at its worst step, and takes again, ns."""

    at: int
    gone: Flags
    hold: int
    nbytes: int
    extra: int


class _Held:
    """What the cheapest choice before the step `at` lets go of, at a price, for one of HOLDS after another,
    as they are asked for."""

    def __init__(self, cuts: ChoiceCuts, at: int, price: float, tilt: float) -> None:
        self.problem, self.at = cuts.problem, at
        self.gone = cuts.choice(at, price, tilt)
        self.choices: list[Choice] = []

    def nearest(self, capacity: int) -> Choice:
        """The first that fits, which is the quickest; where none does, the one with the fewest bytes."""
        for place, share in enumerate(HOLDS):
            if place == len(self.choices):
                self.choices.append(self._choose(int(share * len(self.problem.cost))))
            if _fits(self.choices[place], capacity):
                return self.choices[place]
        return min(self.choices, key=partial(_nearness, capacity=capacity))

    def _choose(self, hold: int) -> Choice:
        problem = self.problem
        scratch = np.zeros(MOST_RUNS * len(problem.cost) + 1, np.int64)
        given = (problem.arrays, self.at, self.gone, hold, problem.again, problem.spoiled)
        nbytes, total = weigh(*given, problem.cost, scratch)
        return Choice(self.at, self.gone, hold, nbytes, total - problem.total)


@dataclass(slots=True, eq=False)
class ScheduleSearch:
    """Schedules of `problem` for one capacity after another. What each finds is kept: a schedule within one
    capacity is one within every larger one, so that no larger one ever takes longer."""

    problem: RecomputeProblem
    found: list[Schedule] = field(init=False)
    steps: list[int] = field(init=False)
    """At which most is live while nothing runs again (`high_steps`)."""
    _cuts: ChoiceCuts = field(init=False)
    _choices: dict[tuple[int, float], list[_Held]] = field(default_factory=dict)
    """By boundary and tilt those at PRICES, dearest last."""

    def __post_init__(self) -> None:
        as_is = np.arange(len(self.problem.cost))
        live = sequence_live(self.problem.arrays, as_is)
        self.found = [Schedule(as_is, int(live.max(initial=0)), 0)]
        self.steps = high_steps(self.problem, live)
        self._cuts = ChoiceCuts(self.problem)

    def within(self, capacity: int, limits: SolveLimits, rough: bool = False) -> Schedule | None:
        """The schedule of at most `capacity` live bytes that runs least again, of all found so far; None
        where there is none. `rough`: what cuts give, put right, and not repaired."""
        if self.found[0].nbytes > capacity:
            near: list[Choice] = []
            for at in self.steps[:BOUNDARIES]:
                for tilt in TILTS:
                    near += self._near(at, tilt, capacity)
                    if limits.stopped:
                        break
            near.sort(key=partial(_nearness, capacity=capacity))
            for each in _differing(near)[: 1 if rough else BEST]:
                self._put_right(each, capacity, limits)
            if not rough:
                self._repair(capacity, limits)
        return self.best(capacity)

    def best(self, capacity: int) -> Schedule | None:
        """What of all found runs least again within `capacity` bytes; None where nothing is."""
        fitting = [each for each in self.found if each.nbytes <= capacity]
        return min(fitting, key=lambda each: each.extra, default=None)

    def _repair(self, capacity: int, limits: SolveLimits) -> None:
        """Keep what is found by letting single storages go at the worst steps, from all ops once on, and what
        repairs make of the best so far: cuts let all go at one step."""
        problem, n = self.problem, len(self.problem.cost)
        given = (problem.again, problem.spoiled, problem.cost, capacity)
        sequence = np.zeros(MOST_RUNS * n + 1, np.int64)
        sequence[:n] = np.arange(n)
        count = release(problem.arrays, sequence, n, *given, 0.0, limits.stop)
        if count >= 0:
            count = tighten(problem.arrays, sequence, count, problem.cost, capacity, limits.stop)
            self._keep(sequence[:count].copy(), capacity)
        best = self.best(capacity)
        if best is None or not best.extra:
            return
        count = len(best.sequence)
        sequence[:count] = best.sequence
        rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, REPAIRED_OPS // n))
        count = repair(problem.arrays, sequence, count, *given, rounds, 0, limits.stop)
        self._keep(sequence[:count], capacity)

    def _near(self, at: int, tilt: float, capacity: int) -> list[Choice]:
        """Choices at `at` whose schedules come close to `capacity`, from below and from above."""
        most = self.problem.total / max(1, self.found[0].nbytes)
        prices = [most * 2.0**power for power in range(-CHEAPEST, PRICES - CHEAPEST)]
        if (at, tilt) not in self._choices:
            self._choices[at, tilt] = [_Held(self._cuts, at, price, tilt) for price in prices]
        known = [held.nearest(capacity) for held in self._choices[at, tilt]]
        found = list(known)
        for price, (cheap, dear) in zip(prices, pairwise(known), strict=False):
            if not (_fits(dear, capacity) and not _fits(cheap, capacity)):
                continue
            low, high = price, 2 * price
            for _ in range(HALVINGS):
                middle = (low * high) ** 0.5
                found.append(_Held(self._cuts, at, middle, tilt).nearest(capacity))
                if _fits(found[-1], capacity):
                    high = middle
                else:
                    low = middle
        return [each for each in found if each.nbytes >= 0]

    def _put_right(self, choice: Choice, capacity: int, limits: SolveLimits) -> None:
        """Keep what changes by chance make of the schedule of `choice`, where that is within `capacity`."""
        problem, gone = self.problem, choice.gone.copy()
        given = (problem.arrays, choice.at, gone, choice.hold, problem.again, problem.spoiled, problem.cost)
        tries = min(MOST_TRIES, max(LEAST_TRIES, TRIED_OPS // len(problem.cost)))
        best, quiet, seed = (2**62, 2**62), 0, 0
        while quiet < QUIET and not limits.stopped:
            nbytes, total = improve(*given, capacity, tries, seed, limits.stop)
            now = (max(0, nbytes - capacity), total)
            quiet, best, seed = (0 if now < best else quiet + 1), now, seed + 1
        self._keep(self._sequence(choice, gone), capacity)

    def _sequence(self, choice: Choice, gone: Flags) -> Ints:
        """The schedule of `choice` that lets go of `gone`."""
        problem = self.problem
        sequence = np.zeros(MOST_RUNS * len(problem.cost) + 1, np.int64)
        given = (problem.arrays, choice.at, gone, choice.hold, problem.again, problem.spoiled)
        return sequence[: lazy_sequence(*given, sequence)]

    def _keep(self, sequence: Ints, capacity: int) -> None:
        """`sequence`, where it is within `capacity`."""
        problem = self.problem
        nbytes = int(sequence_live(problem.arrays, sequence).max(initial=0))
        if nbytes <= capacity:
            again = int(problem.cost[sequence].sum()) - problem.total
            self.found.append(Schedule(sequence, nbytes, again))


def _nearness(choice: Choice, capacity: int) -> tuple[bool, int, int]:
    """Of several the least: what fits, by its time; else what is least above."""
    return choice.nbytes < 0, max(0, choice.nbytes - capacity), choice.extra


def _fits(choice: Choice, capacity: int) -> bool:
    return 0 <= choice.nbytes <= capacity


def _differing(choices: list[Choice]) -> list[Choice]:
    """Those of which none before has the same bytes and time."""
    return list({(each.nbytes, each.extra): each for each in reversed(choices)}.values())[::-1]


@cache
def load_recompute_kernels() -> None:
    """Look for a schedule of two ops for nothing, with every kernel."""
    storages = tuple(Storage(name, 1, Role.OUTPUT) for name in "ab")
    tensors = tuple(Tensor(name, (), "", 1, name) for name in "ab")
    ops = (Op("f", "", (), ("a",)), Op("g", "", ("a",), ("b",)))
    problem = recompute_problem(Graph("two", storages, tensors, ops, (), ("b",)), (0.0, 0.0))
    search = ScheduleSearch(problem)
    BoundSearch(TimeCuts(problem), search.steps).bound(2, SolveLimits())
    search._put_right(_Held(search._cuts, 1, 0.0, 0.0).nearest(2), 2, SolveLimits())
    search._repair(2, SolveLimits())
    arrays, two, stop = problem.arrays, np.zeros(9, np.int64), np.zeros(1, np.bool_)
    repair(arrays, two, 2, problem.again, problem.spoiled, problem.cost, 2, 1, 0, stop)
