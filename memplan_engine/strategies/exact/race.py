"""Attempts at all parts of a problem in turn: the arena falls, the bound rises, until they meet."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.problem import Ints, Problem, select
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.order_fit import without_empty
from memplan_engine.strategies.exact.independent_parts import (
    BRANCHING_RULES,
    MOST_BUFFERS,
    Outcome,
    PartSearch,
    independent,
)

SPREAD = (5**0.5 - 1) / 2
"""Every other early attempt looks between the target and the best arena, by multiples of the golden ratio. In
practice an attempt may succeed at one capacity and run out of time at a higher one, so none is ruled out by
another."""
EARLY_ATTEMPTS = 5 * len(BRANCHING_RULES)
"""After so many attempts at a part, about two seconds' worth, most go downwards from the best arena if it is
still far above the target. What can be brought to the target is mostly there before, or near."""
NEAR = 0.04
"""Of the target: a best arena that is no farther above it is searched as in the beginning."""
TARGET_SHARE = 0.25
"""How many of the later attempts look at the target."""
RUNG = 0.85
"""The others look at rungs: each is as far above the target as the one above it times RUNG, and has half as
many attempts. What is tried at a rung shares what was refuted there. Of 0.7, 0.8 and 0.85 the last left the
smallest arenas after 8 s."""

LOWER = (0.9, 0.7, 0.4, 0.0)
"""Where the rule that has just succeeded tries next."""


class Race:
    """Attempts at the parts of `problem` that a first placement leaves above the target.

    The target is the bound, or `capacity` bytes if that is more; the bound rises as parts are refuted. What
    attempts on several threads change together changes under a lock. With one thread and no time limit the
    same attempts run in the same order every time.
    """

    def __init__(
        self, problem: Problem, first: Placement, bound: Bound, seed: int = 0, capacity: int | None = None
    ) -> None:
        self.problem, self.bound, self.capacity = problem, bound, capacity
        self.best = without_empty(first, problem)
        self._lock = threading.Lock()
        tops = first.offsets + problem.size
        open_rows = [rows for rows in independent(problem) if int(tops[rows].max()) > self.target]
        small = [rows for rows in open_rows if len(rows) <= MOST_BUFFERS]
        self.parts = [PartSearch(problem, rows, select(problem, rows), seed) for rows in small]
        self._tops = [int(tops[rows].max()) for rows in small]
        self._turns = [0] * len(small)
        self._again: list[deque[tuple[int, float]]] = [deque() for _ in small]
        self._first_tops = list(self._tops)
        self._seed = seed

    @property
    def target(self) -> int:
        """No part needs to get below this many bytes."""
        return max(self.bound.nbytes, self.capacity or 0)

    @property
    def settled(self) -> bool:
        """Whether nothing is left to try: each part fits into the target, or the capacity is refuted."""
        return self._refuted or not self._open()

    @property
    def decided(self) -> bool:
        """Whether the best placement fits into the target, or the capacity is refuted."""
        return self._refuted or self.best.arena_bytes(self.problem) <= self.target

    @property
    def _refuted(self) -> bool:
        return self.capacity is not None and self.bound.nbytes > self.capacity

    def run(self, limits: SolveLimits, threads: int = 1) -> None:
        """Make attempts until all is settled or `limits` are reached, on `threads` threads at once."""
        if threads == 1:
            self._work(limits)
            return
        with ThreadPoolExecutor(threads) as pool:
            for work in [pool.submit(self._work, limits) for _ in range(threads)]:
                work.result()

    def adopt(self, placement: Placement) -> None:
        """Take over each part of another placement that is lower there."""
        offsets = placement.offsets
        with self._lock:
            for index, part in enumerate(self.parts):
                self._lower(index, offsets[part.rows], placement.found_by)
            others = np.ones(len(self.problem), dtype=bool)
            for part in self.parts:
                others[part.rows] = False
            ends = (offsets + self.problem.size)[others].max(initial=0)
            if ends < (self.best.offsets + self.problem.size)[others].max(initial=0):
                self.best = Placement(np.where(others, offsets, self.best.offsets), placement.found_by)

    def _work(self, limits: SolveLimits) -> None:
        for index, capacity, number in self._attempts(limits):
            outcome, offsets = self.parts[index].attempt(capacity, number, limits)
            if offsets is not None:
                self._improve(index, offsets, limits, number)
            elif outcome is Outcome.DOES_NOT_FIT:
                self._refute(index, capacity, limits)

    def _attempts(self, limits: SolveLimits) -> Iterator[tuple[int, int, int]]:
        """Part, capacity and number of what comes next; the parts take turns."""
        while not limits.stopped:
            with self._lock:
                open_parts = [] if self._refuted else self._open()
                if not open_parts:
                    return
                index = min(open_parts, key=self._turns.__getitem__)
                number, capacity = self._next(index)
            yield index, capacity, number

    def _open(self) -> list[int]:
        """The parts above the target for which there is still something to try."""
        target = self.target
        return [
            index
            for index, (part, top) in enumerate(zip(self.parts, self._tops, strict=True))
            if top > target and not part.stuck(target, top)
        ]

    def _next(self, index: int) -> tuple[int, int]:
        """The number of the next attempt at a part, and the capacity that it looks at, in bytes."""
        room = max(0, self._tops[index] - self.parts[index].step - self.target)
        if self._again[index]:
            number, height = self._again[index].popleft()
        else:
            number = self._turns[index]
            self._turns[index] += 1
            height = self._height(index, number, room)
        return number, self.target + (int(room * height) if self.capacity is None else 0)

    def _height(self, index: int, number: int, room: int) -> float:
        """Where an attempt looks: 0 for the target, 1 for `room` bytes above it, just below the best one."""
        if not self.parts[index].exact and number % 4 == 2:
            # Just below the best: once that is refuted, windows taken for full have nothing more to give.
            return 1.0
        if number < EARLY_ATTEMPTS or room <= NEAR * self.target:
            # Rules that look at the target in one round look elsewhere in the next.
            return number * SPREAD % 1.0 if self.parts[index].configuration(number).odd else 0.0
        random = np.random.default_rng((self._seed, number, index))
        if not room or random.random() < TARGET_SHARE:
            return 0.0
        ladder = self._first_tops[index] - self.target
        below = max(0, math.ceil(math.log(room / ladder, RUNG)))
        return ladder * RUNG ** (below + int(random.geometric(0.5)) - 1) / room

    def _improve(self, index: int, offsets: Ints, limits: SolveLimits, number: int) -> None:
        with self._lock:
            if not self._lower(index, offsets, "branch and bound"):
                return
            # What fits once with one rule often fits lower with it, too.
            self._again[index] = deque((number, height) for height in LOWER)
        limits.report(self.best, self.problem)

    def _lower(self, index: int, offsets: Ints, found_by: str) -> bool:
        """Take over the `offsets` of a part if its top is lower with them; whether it is. Under the lock."""
        part = self.parts[index]
        top = int((offsets + part.part.size).max())
        if top >= self._tops[index]:
            return False
        self._tops[index] = top
        better = self.best.offsets.copy()
        better[part.rows] = offsets
        self.best = Placement(better, found_by)
        return True

    def _refute(self, index: int, capacity: int, limits: SolveLimits) -> None:
        part, rows = self.parts[index], np.sort(self.parts[index].rows)
        nbytes = (capacity // part.step + 1) * part.step
        with self._lock:
            if nbytes <= self.bound.nbytes:
                return
            first, last = int(part.part.start.min()), int(part.part.end.max())
            self.bound = Bound(nbytes, BoundKind.CORE, first, core=tuple(rows.tolist()), until=last)
        limits.prove(self.bound)
