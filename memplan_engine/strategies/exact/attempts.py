"""The search of one independent part: many short attempts, each with its own taste, until one settles it.

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
from memplan_engine.strategies.exact.independent_parts import Columns, Windows, make_columns
from memplan_engine.strategies.limits import SolveLimits


class Outcome(IntEnum):
    """What an attempt found out about a capacity."""

    UNDECIDED = branch.UNDECIDED
    DOES_NOT_FIT = branch.DOES_NOT_FIT
    FITS = branch.FITS


TASTES: tuple[tuple[int, str], ...] = (
    (branch.FULLEST, "columns"),
    (branch.FEWEST_WAYS, "length"),
    (branch.LOWEST_FEWEST_LEVEL, "area"),
    (branch.LOWEST, "columns"),
    (branch.FEWEST_WAYS, "size"),
    (branch.LOWEST_FEWEST_WAYS, "area"),
    (branch.FEWEST_LEVEL, "columns"),
    (branch.LOWEST_FEWEST_LEVEL, "columns"),
    (branch.FULLEST_FEWEST_LEVEL, "length"),
    (branch.LOWEST, "area"),
    (branch.FULLEST, "shortness"),
    (branch.LOWEST_FEWEST_WAYS, "shortness"),
    (branch.LOWEST, "size"),
    (branch.FEWEST_LEVEL, "shortness"),
)
"""Column rule and buffer priority of each attempt of a round; neighbours differ as much as they can."""
RANK = 0.6
"""Of the tastes that came furthest, each is taken so many times as often as the one before it."""
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
class Manner:
    """How an attempt searches: its `taste`, and how many attempts had that before."""

    turn: int
    taste: int
    again: int

    @property
    def odd(self) -> bool:
        """Tells one half of the attempts from the other, with each taste by turns."""
        return (self.taste + self.again) % 2 == 1


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
        "columns": width * tie,
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
    _manners: dict[int, Manner] = field(default_factory=dict)
    _tried: list[int] = field(default_factory=lambda: [0] * len(TASTES))
    _furthest: list[int] = field(default_factory=lambda: [0] * len(TASTES))
    _full_refuted: int = -1
    _relaxed_fits: int = 2**62
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.columns = make_columns(self.part)
        self.relaxed = self.columns
        if any(gap.low < gap.high for gaps in self.part.gaps.values() for gap in gaps):
            self.relaxed = make_columns(self.part, Windows.EMPTY)

    @property
    def exact(self) -> bool:
        """Whether attempts can both place and refute."""
        return self.relaxed is self.columns

    @property
    def step(self) -> int:
        """Bytes between one arena that a placement can have and the next."""
        return self.columns.step

    def nodes(self, turn: int) -> int:
        """The node limit of the attempt `turn`."""
        grown = GROWTH ** min(turn // len(TASTES), MOST_GROWTHS)
        return int((FIRST_NODES + NODES_A_BUFFER * len(self.rows)) * grown)

    def manner(self, turn: int) -> Manner:
        """How the attempt `turn` (0, 1, …) searches; settled when first asked for."""
        with self._lock:
            if turn not in self._manners:
                taste = self._taste(turn)
                self._manners[turn] = Manner(turn, taste, self._tried[taste])
                self._tried[taste] += 1
            return self._manners[turn]

    def _taste(self, turn: int) -> int:
        """In the first round one after the other; then so in every other turn, and in the rest by rank."""
        later = turn - len(TASTES)
        if later < 0 or later % 2 == 0:
            return (later // 2 if later >= 0 else turn) % len(TASTES)
        ranked = sorted(range(len(TASTES)), key=lambda taste: -self._furthest[taste])
        rank = int(np.random.default_rng((self.seed, turn)).geometric(1 - RANK)) - 1
        return ranked[rank % len(TASTES)]

    def stuck(self, target: int, top: int) -> bool:
        """Whether windows leave nothing to find: what takes them for full does not get below `top` bytes, and
        what takes them for empty fits into `target`."""
        return self._full_refuted >= top - self.step and self._relaxed_fits <= target

    def attempt(
        self, capacity: int, turn: int, limits: SolveLimits, most_nodes: int = 0
    ) -> tuple[Outcome, Ints | None]:
        """Search for a placement within `capacity` bytes in the manner of `turn` (0, 1, …).

        Gives offsets in bytes, one a row of the part, when it fits. DOES_NOT_FIT is proved.
        """
        manner = self.manner(turn)
        relaxed = not self.exact and manner.odd
        columns = self.relaxed if relaxed else self.columns
        rule, priority = TASTES[manner.taste]
        limit = most_nodes or self.nodes(turn)
        outcome, low, reached = branch.branch(
            columns.within(capacity),
            columns.lows,
            rule,
            self._priority(columns, priority, manner),
            MOST_RAISES[manner.odd],
            limit,
            self._table(capacity, relaxed, limit),
            limits.counter,
            limits.stop,
        )
        self._furthest[manner.taste] = max(self._furthest[manner.taste], int(reached))
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

    def _priority(self, columns: Columns, name: str, manner: Manner) -> Floats:
        values = priorities(columns, name)
        if manner.again:
            noise = np.random.default_rng((self.seed, manner.turn, len(values)))
            values = values * np.exp(noise.normal(0, NOISE, len(values)))
        return values

    def _table(self, capacity: int, relaxed: bool, limit: int) -> branch.Hashes:
        """What was refuted at `capacity` so far. Threads may share it: a slot that one overwrites is only
        forgotten."""
        slots = SMALL_TABLE if limit < SMALL_TABLE else LARGE_TABLE
        with self._lock:
            found = self._tables.pop((capacity, relaxed), None)
            if found is None or len(found) < slots:
                larger = np.zeros(slots, dtype=np.uint64)
                if found is not None:
                    larger[(found & np.uint64(slots - 1)).astype(np.int64)] = found
                found = larger
            self._tables[capacity, relaxed] = found
            # Only those of late, or memory would grow with every step of the bound.
            if len(self._tables) > MOST_TABLES:
                del self._tables[next(iter(self._tables))]
        return found
