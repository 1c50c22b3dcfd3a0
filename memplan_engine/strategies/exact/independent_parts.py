"""Independent parts of a problem, as the branch-and-bound kernel wants them, and attempts at each of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from memplan_engine.kernels.exact import branch
from memplan_engine.kernels.exact.branch import Floats
from memplan_engine.kernels.exact.branch_state import Part
from memplan_engine.problem import FREE, Ints, Pieces, Problem, cut
from memplan_engine.strategies.base import SolveLimits

MOST_BUFFERS = 6_000
"""Parts with more are not searched: neighbours are kept as pairs, and their number is quadratic."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A part without a capacity: `rows` of its problem in the kernel's order, and their columns in units of
    `unit` bytes. `lows` are the fixed offsets, 0 for all others; units."""

    problem: Problem
    rows: Ints
    unit: int
    part: Part
    lows: Ints
    step: int

    def within(self, capacity: int) -> Part:
        """The part with offsets limited by `capacity` bytes."""
        problem, rows = self.problem, self.rows
        fixed = problem.fixed[rows]
        latest = np.where(fixed != FREE, fixed, capacity - problem.size[rows]) // self.unit
        ends = latest + self.part.size
        cap = np.maximum.reduceat(ends[self.part.members], self.part.members_of[:-1])
        return self.part._replace(latest=latest, cap=np.ascontiguousarray(cap))


def independent(problem: Problem) -> Iterator[Ints]:
    """The rows of each independent part: the time axis is cut where nothing is live. Buffers without bytes
    belong to none."""
    rows = np.flatnonzero(problem.size > 0)
    rows = rows[np.argsort(problem.start[rows], kind="stable")]
    if len(rows):
        reach = np.maximum.accumulate(problem.end[rows])
        cuts = np.flatnonzero(problem.start[rows][1:] >= reach[:-1]) + 1
        yield from np.split(rows, cuts)


def make_columns(problem: Problem, relaxed: bool = False) -> Columns:
    """The columns of a part, `problem`, whose buffers all have bytes.

    The kernel knows only whole buffers and none. A gap in which a buffer still needs some of its bytes counts
    as full, which finds placements that are valid; if `relaxed` as empty, which proves bounds that hold.
    """
    pieces = _whole_pieces(problem, relaxed)
    first, last, count = _cliques(pieces)
    begin = np.full(len(problem), count)
    finish = np.zeros(len(problem), dtype=np.int64)
    np.minimum.at(begin, pieces.owner, first)
    np.maximum.at(finish, pieces.owner, last)
    rows = np.lexsort((-finish, begin))
    # Without any piece a buffer needs no bytes at all here.
    rows = rows[begin[rows] < finish[rows]]
    place = np.full(len(problem), -1)
    place[rows] = np.arange(len(rows))
    owner = np.repeat(place[pieces.owner], last - first)
    clique = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)] or [first])
    by_owner, by_clique = np.lexsort((clique, owner)), np.lexsort((owner, clique))
    near_of, near = _neighbours(begin[rows], finish[rows], clique[by_clique], owner[by_clique])
    unit, alignment, size = _units(problem, rows)
    fixed = problem.fixed[rows]
    part = Part(
        first=begin[rows],
        last=finish[rows],
        size=size,
        alignment=alignment,
        latest=np.zeros(len(rows), dtype=np.int64),
        cliques_of=np.searchsorted(owner[by_owner], np.arange(len(rows) + 1)),
        cliques=clique[by_owner],
        near_of=near_of,
        near=near,
        members_of=np.searchsorted(clique[by_clique], np.arange(count + 1)),
        members=owner[by_clique],
        begins=np.searchsorted(begin[rows], np.arange(count + 1)),
        cap=np.zeros(count, dtype=np.int64),
        # Sizes rounded up to units may end at different heights: nothing could be exchanged there.
        plain=not (problem.gaps or (problem.size[rows] % unit).any())
        and bool((fixed == FREE).all() and (alignment == 1).all()),
    )
    step = unit if not (problem.size % unit).any() else 1
    return Columns(problem, rows, unit, part, np.where(fixed != FREE, fixed // unit, 0), step)


def _whole_pieces(problem: Problem, relaxed: bool) -> Pieces:
    pieces = cut(problem)
    if not problem.gaps:
        return pieces
    whole = pieces.high - pieces.low == problem.size[pieces.owner]
    kept = whole if relaxed else pieces.high > pieces.low
    columns = (getattr(pieces, key)[kept] for key in ("owner", "start", "end", "low", "high"))
    return Pieces(pieces.first, *columns)


def _cliques(pieces: Pieces) -> tuple[Ints, Ints, int]:
    """First and last clique (half-open) of each piece, and how many cliques there are: only sections that
    begin with a start and end with an end, as all others hold no more than one of these."""
    # Not the sections of the problem: those are cut, too, where a lifetime begins or ends in a gap.
    bounds = np.unique(np.concatenate([pieces.start, pieces.end]))
    first, last = np.searchsorted(bounds, pieces.start), np.searchsorted(bounds, pieces.end)
    starts, ends = (np.zeros(len(bounds), dtype=bool) for _ in "12")
    starts[first] = True
    ends[last] = True
    largest = starts[:-1] & ends[1:]
    number = np.concatenate([[0], np.cumsum(largest)])
    return number[first], number[last], int(largest.sum())


def _neighbours(first: Ints, last: Ints, clique: Ints, owner: Ints) -> tuple[Ints, Ints]:
    """Who shares a clique with whom: those of buffer u from entry u to entry u + 1."""
    n = len(first)
    if len(owner) == (last - first).sum():
        together = (first[:, None] < last) & (first < last[:, None])
    else:
        # Cliques in which a buffer has a gap do not count.
        together = np.zeros((n, n), dtype=bool)
        for members in np.split(owner, np.flatnonzero(np.diff(clique)) + 1):
            together[np.ix_(members, members)] = True
    np.fill_diagonal(together, False)
    # A column of its own: numba compiles once for each layout, and numpy gives now one, now another.
    near = np.ascontiguousarray(np.nonzero(together)[1])
    return np.concatenate([[0], np.cumsum(together.sum(axis=1))]), near


def _units(problem: Problem, rows: Ints) -> tuple[int, Ints, Ints]:
    """The bytes that divide every offset of a placement pushed down, and alignments and sizes in them."""
    size, alignment, fixed = problem.size[rows], problem.alignment[rows], problem.fixed[rows]
    offsets = fixed[fixed != FREE]
    # 1 where no buffer is left.
    unit = int(np.gcd.reduce(np.concatenate([size, offsets]))) or 1
    if (unit % alignment == 0).all():
        return unit, np.ones_like(size), size // unit
    unit = int(np.gcd.reduce(np.concatenate([alignment, offsets])))
    return unit, alignment // unit, -(-size // unit)


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
        limit = min(most_nodes or self.nodes(number), limits.nodes_left)
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
