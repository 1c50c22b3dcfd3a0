"""The search of one independent part: many short attempts, each with its own rule, until one settles it.

Search times of branch and bound are heavy-tailed: the same part may take a hundred nodes with one order and
millions with another. So orders are raced in turn, with node limits that grow from round to round, and from
the second round on with randomised ties (Gomes, Selman and Kautz, 1998); every other turn then goes to the
orders that came furthest so far. What one attempt refutes the others need not look at again: all attempts at
one capacity share their table.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from memplan_engine.kernels.exact import branch
from memplan_engine.kernels.exact.branch import Floats
from memplan_engine.problem import Ints, Problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.exact.independent_parts import Columns, make_columns


class Outcome(IntEnum):
    """What an attempt found out about a capacity."""

    UNDECIDED = branch.UNDECIDED
    DOES_NOT_FIT = branch.DOES_NOT_FIT
    FITS = branch.FITS


BRANCHING_RULES: tuple[tuple[int, str], ...] = (
    (branch.FULLEST, "cliques"),
    (branch.FEWEST_WAYS, "length"),
    (branch.LOWEST_FEWEST_LEVEL, "area"),
    (branch.LOWEST, "cliques"),
    (branch.FEWEST_WAYS, "size"),
    (branch.LOWEST_FEWEST_WAYS, "area"),
    (branch.FEWEST_LEVEL, "cliques"),
    (branch.LOWEST_FEWEST_LEVEL, "cliques"),
    (branch.FULLEST_FEWEST_LEVEL, "length"),
    (branch.LOWEST, "area"),
    (branch.FULLEST, "shortness"),
    (branch.LOWEST_FEWEST_WAYS, "shortness"),
    (branch.LOWEST, "size"),
    (branch.FEWEST_LEVEL, "shortness"),
)
"""Clique rule and buffer priority of each attempt of a round; neighbours differ as much as they can."""
RANK = 0.6
"""Of the rules that came furthest, each is taken so many times as often as the one before it."""
FIRST_NODES = 200
NODES_A_BUFFER = 3
GROWTH = 1.15
MOST_GROWTHS = 60
NOISE = 0.15
MOST_RAISES = (0, 8)
"""How often even and odd attempts may raise buffers over waste at each node. More prunes more, and costs
more."""
SMALL_TABLE, LARGE_TABLE = 2**14, 2**20
MOST_TABLES = 8


@dataclass(frozen=True, slots=True)
class AttemptConfiguration:
    """How an attempt searches: its `rule`, and how many attempts had that before."""

    number: int
    rule: int
    again: int

    @property
    def odd(self) -> bool:
        """Tells one half of the attempts from the other, with each rule by turns."""
        return (self.rule + self.again) % 2 == 1


def priorities(columns: Columns, name: str) -> Floats:
    """What `name` says of each buffer of a part, the larger the sooner; of equals the larger buffer first."""
    rows, part = columns.rows, columns.problem
    size = part.size[rows].astype(np.float64)
    length = (part.end - part.start)[rows].astype(np.float64)
    width = (columns.part.last - columns.part.first).astype(np.float64)
    tie = 1 + size / (1e6 * size.max(initial=1))
    values: dict[str, Floats] = {
        "length": length * tie,
        "shortness": 1 / (length * tie),
        "cliques": width * tie,
        "area": length * size,
        "size": size,
    }
    return values[name]


@dataclass(slots=True, eq=False)
class PartSearch:
    """Attempts at one part of a problem (`rows` of it). `columns` serve placements, `relaxed` proofs: they
    differ only where buffers have gaps in which they need some of their bytes."""

    problem: Problem
    rows: Ints
    part: Problem
    seed: int = 0
    columns: Columns = field(init=False)
    relaxed: Columns = field(init=False)
    _tables: dict[tuple[int, bool], branch.Hashes] = field(default_factory=dict)
    _configurations: dict[int, AttemptConfiguration] = field(default_factory=dict)
    _tried: list[int] = field(default_factory=lambda: [0] * len(BRANCHING_RULES))
    _furthest: list[int] = field(default_factory=lambda: [0] * len(BRANCHING_RULES))
    _full_refuted: int = -1
    _relaxed_fits: int = 2**62
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.columns = make_columns(self.part)
        self.relaxed = self.columns
        if any(gap.low < gap.high for gaps in self.part.gaps.values() for gap in gaps):
            self.relaxed = make_columns(self.part, relaxed=True)

    @property
    def exact(self) -> bool:
        """Whether attempts can both place and refute."""
        return self.relaxed is self.columns

    @property
    def step(self) -> int:
        """Bytes between one arena that a placement can have and the next."""
        return self.columns.step

    def nodes(self, number: int) -> int:
        """The node limit of the attempt `number`."""
        grown = GROWTH ** min(number // len(BRANCHING_RULES), MOST_GROWTHS)
        return int((FIRST_NODES + NODES_A_BUFFER * len(self.rows)) * grown)

    def configuration(self, number: int) -> AttemptConfiguration:
        """How the attempt `number` (0, 1, …) searches; settled when first asked for."""
        with self._lock:
            if number not in self._configurations:
                rule = self._rule(number)
                self._configurations[number] = AttemptConfiguration(number, rule, self._tried[rule])
                self._tried[rule] += 1
            return self._configurations[number]

    def _rule(self, number: int) -> int:
        """In the first round one after the other; then so in every other turn, and in the rest by rank."""
        later = number - len(BRANCHING_RULES)
        if later < 0 or later % 2 == 0:
            return (later // 2 if later >= 0 else number) % len(BRANCHING_RULES)
        ranked = sorted(range(len(BRANCHING_RULES)), key=lambda rule: -self._furthest[rule])
        rank = int(np.random.default_rng((self.seed, number)).geometric(1 - RANK)) - 1
        return ranked[rank % len(BRANCHING_RULES)]

    def stuck(self, target: int, top: int) -> bool:
        """Whether windows leave nothing to find: what takes them for full does not get below `top` bytes, and
        what takes them for empty fits into `target`."""
        return self._full_refuted >= top - self.step and self._relaxed_fits <= target

    def attempt(
        self, capacity: int, number: int, limits: SolveLimits, most_nodes: int = 0
    ) -> tuple[Outcome, Ints | None]:
        """Search for a placement within `capacity` bytes as attempt `number` (0, 1, …).

        Gives offsets in bytes, one a row of the part, when it fits. DOES_NOT_FIT is proved.
        """
        configuration = self.configuration(number)
        relaxed = not self.exact and configuration.odd
        columns = self.relaxed if relaxed else self.columns
        rule, priority = BRANCHING_RULES[configuration.rule]
        limit = most_nodes or self.nodes(number)
        outcome, low, reached = branch.branch(
            columns.within(capacity),
            columns.lows,
            rule,
            self._priority(columns, priority, configuration),
            MOST_RAISES[configuration.odd],
            limit,
            self._table(capacity, relaxed, limit),
            limits.counter,
            limits.stop,
        )
        self._furthest[configuration.rule] = max(self._furthest[configuration.rule], int(reached))
        if outcome == Outcome.FITS and not relaxed:
            offsets = np.maximum(self.part.fixed, 0)
            offsets[columns.rows] = low * columns.unit
            return Outcome.FITS, offsets
        if outcome == Outcome.FITS:
            self._relaxed_fits = min(self._relaxed_fits, capacity)
        elif outcome == Outcome.DOES_NOT_FIT and not relaxed:
            self._full_refuted = max(self._full_refuted, capacity)
        refuted = outcome == Outcome.DOES_NOT_FIT and (self.exact or relaxed)
        return (Outcome.DOES_NOT_FIT if refuted else Outcome.UNDECIDED), None

    def _priority(self, columns: Columns, name: str, configuration: AttemptConfiguration) -> Floats:
        values = priorities(columns, name)
        if configuration.again:
            noise = np.random.default_rng((self.seed, configuration.number, len(values)))
            values = values * np.exp(noise.normal(0, NOISE, len(values)))
        return values

    def _table(self, capacity: int, relaxed: bool, limit: int) -> branch.Hashes:
        """What was refuted at `capacity` so far. Threads may share it: a slot that one overwrites is only
        forgotten."""
        slots = SMALL_TABLE if limit < SMALL_TABLE else LARGE_TABLE
        with self._lock:
            table = self._tables.pop((capacity, relaxed), None)
            if table is None or len(table) < slots:
                larger = np.zeros(slots, dtype=np.uint64)
                if table is not None:
                    larger[(table & np.uint64(slots - 1)).astype(np.int64)] = table
                table = larger
            self._tables[capacity, relaxed] = table
            # Only those of late, or memory would grow with every step of the bound.
            if len(self._tables) > MOST_TABLES:
                del self._tables[next(iter(self._tables))]
        return table
