"""A problem cut into pieces and sections, and the orders in which its buffers are placed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.graph import MAX_BYTES
from memplan_engine.kernels.constructive import placed
from memplan_engine.kernels.constructive.breadth import busiest_section
from memplan_engine.kernels.constructive.gap_tree import effort
from memplan_engine.problem import Ints, Pieces, Problem
from memplan_engine.profile import Sections, live_bytes, load_of
from memplan_engine.units import format_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A problem with its pieces and sections.

    `width` and `cell` choose the kernel and how fine it divides time (`placed.cell_width`,
    `effort.tree_cell`): the tree where `cell` is not `effort.RUNS`. The offsets are the same in any case.
    """

    problem: Problem
    pieces: Pieces
    sections: Sections
    width: int
    cell: int = effort.RUNS


def kernel_columns(timeline: Timeline) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints]:
    """What kernels take of a problem: `first` of each buffer's pieces, `start`, `end`, `low` and `high` of
    the pieces, in sections and bytes from the offset, `size` and `alignment` of the buffers."""
    problem, pieces, sections = timeline.problem, timeline.pieces, timeline.sections
    # Copies: numba compiles once for each mixture of read-only and writable arrays.
    first, start, end = np.array(pieces.first), np.array(sections.first), np.array(sections.last)
    low, high = np.array(pieces.low), np.array(pieces.high)
    return first, start, end, low, high, np.array(problem.size), np.array(problem.alignment)


def make_timeline(problem: Problem) -> Timeline:
    """The timeline of `problem`: O(n log n), once a problem."""
    return problem.once(_timeline)


def _timeline(problem: Problem) -> Timeline:
    load = load_of(problem)
    pieces, sections = load.pieces, load.sections
    width = int(placed.cell_width(sections.first, sections.last, len(sections)))
    cell = int(effort.tree_cell(sections.first, sections.last, len(sections), width))
    return Timeline(problem, pieces, sections, width, cell)


class FitRule(StrEnum):
    """The rule for choosing a hole."""

    FIRST = "first"
    BEST = "best"
    TOP = "top"


class Unit(StrEnum):
    """What a key counts."""

    BYTES = "bytes"
    STEPS = "steps"
    STEP = "step"
    BUFFERS = "buffers"
    BYTE_STEPS = "byte-steps"
    PLACE = "place"


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """One column that an order sorts by: a value a buffer, the largest first when `descending`.

    `values` are Python's integers, in an array of objects, where they pass 2^63. `joint` comes between this
    key and the next in a sentence; only the first key is told where it is empty.
    """

    name: str
    unit: Unit
    values: Ints
    descending: bool = False
    joint: str = ""

    def words(self, buffer: int) -> str:
        """The value of `buffer`, for people: "512 KiB", "7 steps", "step 4"."""
        value = int(self.values[buffer])
        if self.unit is Unit.BYTES:
            return format_bytes(value)
        if self.unit is Unit.BYTE_STEPS:
            return f"{format_bytes(value)} × steps"
        if self.unit in (Unit.STEP, Unit.PLACE):
            return f"{self.unit} {value:,}"
        return f"{value:,} {self.unit if value != 1 else self.unit[:-1]}"

    @property
    def ranks(self) -> Ints:
        """A column that sorts as this key does, smallest first."""
        values: Ints = self.values
        if values.dtype == np.object_:
            values = np.unique(values, return_inverse=True)[1]
        return -values if self.descending else values


@dataclass(frozen=True, slots=True)
class Order:
    """An order by `keys`, the most important first; ties go to the first in the problem.

    `name` is said of placements ("size × best fit"), `words` of the order in pseudo-code.
    """

    name: str
    words: str
    keys: Callable[[Timeline], tuple[Key, ...]]

    def __call__(self, timeline: Timeline) -> Ints:
        """The buffers in this order, a permutation of 0 … n − 1: O(n log n)."""
        return np.lexsort(tuple(key.ranks for key in reversed(self.keys(timeline))))


def _size(problem: Problem) -> Key:
    return Key("size", Unit.BYTES, problem.size, descending=True)


def _start(problem: Problem) -> Key:
    return Key("start", Unit.STEP, problem.start)


def _lifetime(problem: Problem) -> Key:
    return Key("lifetime", Unit.STEPS, problem.end - problem.start, descending=True)


def _area(problem: Problem) -> Key:
    size, length = problem.size, problem.end - problem.start
    if int(size.max(initial=0)) * int(length.max(initial=0)) > MAX_BYTES:
        size = size.astype(object)
    return Key("size × lifetime", Unit.BYTE_STEPS, size * length, descending=True)


def _by_conflicts(timeline: Timeline) -> tuple[Key, ...]:
    problem = timeline.problem
    count = Key("conflicts", Unit.BUFFERS, conflicts(problem), descending=True)
    return count, _size(problem), _start(problem)


def _by_breadth(timeline: Timeline) -> tuple[Key, ...]:
    """A buffer is placed with the first step by breadth at which it is live: the busiest of its lifetime."""
    busiest, live = busiest_sections(timeline)
    return (
        Key("breadth", Unit.BYTES, live, descending=True, joint=" live at "),
        Key("busiest step", Unit.STEP, timeline.sections.bounds[busiest]),
        _size(timeline.problem),
        _start(timeline.problem),
    )


def _by_heat(timeline: Timeline) -> tuple[Key, ...]:
    live = Key("breadth", Unit.BYTES, busiest_sections(timeline)[1], descending=True)
    return live, _area(timeline.problem), _start(timeline.problem)


BY_SIZE = Order("size", "largest size first", lambda t: (_size(t.problem), _start(t.problem)))
BY_SIZE_THEN_LIFETIME = Order(
    "size, then lifetime",
    "largest size first, of equals the longest lifetime",
    lambda t: (_size(t.problem), _lifetime(t.problem), _start(t.problem)),
)
BY_AREA = Order("area", "largest size × lifetime first", lambda t: (_area(t.problem), _start(t.problem)))
BY_LIFETIME = Order(
    "lifetime",
    "longest lifetime first, of equals the largest",
    lambda t: (_lifetime(t.problem), _size(t.problem), _start(t.problem)),
)
BY_CONFLICTS = Order("conflicts", "live with the most others first, of equals the largest", _by_conflicts)
BY_BREADTH = Order(
    "breadth", "live at the step with the most live bytes first, of these the largest", _by_breadth
)
BY_HEAT = Order(
    "heat", "live at the step with the most live bytes first, of these the largest size × lifetime", _by_heat
)
BY_START = Order("start", "earliest start first", lambda t: (_start(t.problem),))
BY_START_THEN_END = Order(
    "start, then end",
    "earliest start first, of equals the earliest end",
    lambda t: (_start(t.problem), Key("end", Unit.STEP, t.problem.end)),
)
BY_SIZE_ALONE = Order("size alone", "largest size first", lambda t: (_size(t.problem),))
AS_GIVEN = Order(
    "as given",
    "as in the problem",
    lambda t: (Key("place in the problem", Unit.PLACE, np.arange(len(t.problem))),),
)


TITLES = {
    BY_SIZE_THEN_LIFETIME.name: "largest first, then longest-lived",
    BY_SIZE.name: "largest first",
    BY_AREA.name: "largest size × lifetime first",
    BY_LIFETIME.name: "longest-lived first",
    BY_CONFLICTS.name: "most conflicts first",
    BY_BREADTH.name: "busiest step first",
    BY_HEAT.name: "busiest step first, largest size × lifetime",
    BY_START.name: "earliest first",
    "urgency": "most urgent first",
}
"""What placements in an order are called, the longer of two names first that end alike."""


def planner_words(found_by: str) -> str:
    """What found a placement, for people: "largest first, first fit" of "size × first fit"."""
    for name, title in TITLES.items():
        found_by = found_by.replace(f"{name} × ", f"{title}, ")
    return found_by


def busiest_sections(timeline: Timeline) -> tuple[Ints, Ints]:
    """The busiest section of each buffer's lifetime, and the bytes live there: O(n log n)."""
    problem, pieces, sections = timeline.problem, timeline.pieces, timeline.sections
    live = live_bytes(sections, pieces.high - pieces.low)
    first = np.searchsorted(sections.bounds, problem.start)
    last = np.searchsorted(sections.bounds, problem.end)
    busiest = busiest_section(first, last, live) if len(problem) else first
    return busiest, live[busiest]


def conflicts(problem: Problem) -> Ints:
    """How many other buffers are live at some step of each one's lifetime: O(n log n)."""
    ended = np.searchsorted(np.sort(problem.end), problem.start, side="right")
    begun = np.searchsorted(np.sort(problem.start), problem.end, side="left")
    return begun - ended - 1
