"""The strategies for shared objects: whole buffers are assigned to whole objects.

A shared object is a piece of memory that one buffer after the other uses, never two at a time. The objects
lie one behind another in the arena, so an assignment is also a placement. Lifetimes count as a whole here: a
buffer keeps its object in its gaps, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from memplan_engine.analysis.positional import positional_maxima
from memplan_engine.errors import PlanError
from memplan_engine.kernels.constructive.trace import Trace
from memplan_engine.kernels.shared_objects.assign import (
    NOBODY,
    assign_from_pool,
    assign_in_order,
    lay_out,
)
from memplan_engine.kernels.shared_objects.matching import cheapest_successors
from memplan_engine.kernels.shared_objects.objects import assign_by_distance, assign_to_fullest
from memplan_engine.kernels.types import Flags
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.orders import (
    BY_BREADTH,
    BY_SIZE,
    BY_SIZE_ALONE,
    BY_START,
    Key,
    Order,
    Timeline,
    Unit,
    make_timeline,
)

SOURCE = "Pisarchyk & Lee 2020 (arXiv 2001.03288), shared objects; TFLite's GPU delegate"
MOST_MATCHED = 10_000
"""With more buffers, a minimum-cost flow takes minutes."""


class ObjectRule(StrEnum):
    """The rule for choosing a free object; of equals the one made first."""

    SMALLEST = "smallest"
    CLOSEST = "closest"
    LEAST_IDLE = "least idle"
    FULLEST = "fullest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedObjects:
    """A strategy that assigns every buffer to an object.

    `kernel` gives the object of each buffer of a problem without gaps, objects numbered as they are made, and
    NOBODY where `stop` was raised first. `by` and `rule` say how it decides, for a replay; None for one that
    cannot be replayed. With more than `most` buffers it would take minutes.
    """

    name: str
    description: str
    source: str = SOURCE
    kernel: Callable[[Problem, Flags, Trace | None], Ints] = field(repr=False)
    by: Order | None = field(default=None, repr=False)
    rule: ObjectRule | None = field(default=None, repr=False)
    most: int | None = field(default=None, repr=False)

    def assign(self, problem: Problem, limits: SolveLimits, trace: Trace | None = None) -> Ints:
        """The object of each buffer of `problem`, which has no gaps; NOBODY where limits ended it first."""
        return self.kernel(problem, limits.stop, trace)

    def obstacle(self, problem: Problem) -> str:
        """Why `problem` cannot be placed: too many buffers, or a fixed offset, which would tear an object out
        of the row."""
        if self.most is not None and len(problem) > self.most:
            return f"{len(problem):,} buffers, and more than {self.most:,} would take minutes"
        fixed = np.flatnonzero(problem.fixed != FREE)
        if not len(fixed):
            return ""
        buffer = problem[int(fixed[0])]
        return (
            f"buffer {buffer.name!r} is fixed at offset {buffer.fixed}, "
            "and shared objects lie one behind another wherever there is room"
        )

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """Assign, and lay the objects one behind another.

        Raises
        ------
        PlanError: a buffer has a fixed offset, or the limits end it before the last one has its object.
        """
        reason = self.obstacle(problem)
        if reason:
            raise PlanError(f"{problem.name}: {self.name} cannot place it: {reason}")
        objects = self.assign(replace(problem, gaps={}), limits)
        if len(objects) != len(problem) or (objects == NOBODY).any():
            raise PlanError(f"{problem.name}: {self.name} was stopped before every buffer had its object")
        by_object = np.argsort(objects, kind="stable")
        # Copies: numba compiles once for each mixture of read-only and writable arrays.
        offsets: Ints = lay_out(by_object, objects, np.array(problem.size), np.array(problem.alignment))
        return Placement(offsets, objects=objects)


def _columns(problem: Problem) -> tuple[Ints, Ints, Ints]:
    """Start, end and size of each buffer, as arrays that kernels take."""
    return np.array(problem.start), np.array(problem.end), np.array(problem.size)


def _by_start(problem: Problem) -> Ints:
    return np.argsort(problem.start, kind="stable")


def _smallest_by(order: Order) -> Callable[[Problem, Flags, Trace | None], Ints]:
    def assign(problem: Problem, stop: Flags, trace: Trace | None) -> Ints:
        order_ = order(make_timeline(problem))
        objects: Ints = assign_in_order(order_, _by_start(problem), *_columns(problem), stop, trace)
        return objects

    return assign


def _position(problem: Problem) -> tuple[Ints, Ints]:
    """The positional maxima, and the place among them of the least that holds each buffer."""
    maxima = positional_maxima(problem)
    return maxima, np.searchsorted(-maxima, -problem.size, side="right") - 1


def _by_positional_maximum(timeline: Timeline) -> tuple[Key, ...]:
    maxima, position = _position(timeline.problem)
    least = maxima[position] if len(position) else position
    return (Key("positional maximum", Unit.BYTES, least, descending=True),)


def _least_idle(problem: Problem, stop: Flags, trace: Trace | None) -> Ints:
    """By positional maximum, then idle steps to an object's lifetimes, then size, descending; ties by start,
    then index. The nearest object, of equals the largest, then the one made first."""
    position = _position(problem)[1]
    order = np.lexsort((problem.start, position))
    objects: Ints = assign_by_distance(order, position, *_columns(problem), stop, trace)
    return objects


def _closest(problem: Problem, stop: Flags, trace: Trace | None) -> Ints:
    """Of two equally close the larger; of equals the one made first among those large enough, the one made
    last among those that grow, as TFLite's sorted pool gives them."""
    by_end = np.argsort(problem.end, kind="stable")
    objects: Ints = assign_from_pool(_by_start(problem), by_end, *_columns(problem), stop, trace)
    return objects


def _fullest(problem: Problem, stop: Flags, trace: Trace | None) -> Ints:
    order = np.argsort(-problem.size, kind="stable")
    objects: Ints = assign_to_fullest(order, *_columns(problem), stop, trace)
    return objects


def _matched(problem: Problem, stop: Flags, _: Trace | None) -> Ints:
    """Chains of successors are the objects, numbered by the start of their first buffer."""
    start, end, size = _columns(problem)
    by_start, by_end = _by_start(problem), np.argsort(end, kind="stable")
    ended = np.searchsorted(end[by_end], start[by_start], side="right")
    column = cheapest_successors(size[by_start], size[by_end], ended, stop)
    if len(column) != len(problem):
        return np.full(len(problem), NOBODY, dtype=np.int64)
    return _chains(by_start, np.where(column == NOBODY, NOBODY, by_end[column]))


def _chains(by_start: Ints, before: Ints) -> Ints:
    """The object of each buffer; `before[i]` is the one whose memory the i-th buffer by start takes over."""
    objects = np.full(len(by_start), NOBODY, dtype=np.int64)
    objects[by_start[before == NOBODY]] = np.arange(np.count_nonzero(before == NOBODY))
    heir = np.full(len(by_start), NOBODY, dtype=np.int64)
    heir[before[before != NOBODY]] = by_start[before != NOBODY]
    heads = np.flatnonzero(objects != NOBODY)
    # All chains one step further at a time.
    while len(heads):
        heads = heads[heir[heads] != NOBODY]
        objects[heir[heads]] = objects[heads]
        heads = heir[heads]
    return objects


SHARED_OBJECTS_BY_SIZE = SharedObjects(
    name="shared_objects_by_size",
    description="whole objects: largest buffer first, smallest free object",
    by=BY_SIZE,
    rule=ObjectRule.SMALLEST,
    kernel=_smallest_by(BY_SIZE),
)
"""Pisarchyk and Lee's greedy by size for shared objects. No object ever grows."""
SHARED_OBJECTS_BY_SIZE_IMPROVED = SharedObjects(
    name="shared_objects_by_size_improved",
    description="whole objects: by positional maximum, then least idle time",
    by=Order(
        "positional maximum",
        "largest positional maximum first, then nearest in time to an object",
        _by_positional_maximum,
    ),
    rule=ObjectRule.LEAST_IDLE,
    kernel=_least_idle,
)
"""Pisarchyk and Lee's greedy by size improved: objects are filled tightly in time, and may grow."""
SHARED_OBJECTS_BY_BREADTH = SharedObjects(
    name="shared_objects_by_breadth",
    description="whole objects: busiest step first, the free object that fits best",
    by=BY_BREADTH,
    rule=ObjectRule.SMALLEST,
    kernel=_smallest_by(BY_BREADTH),
)
"""Pisarchyk and Lee's greedy by breadth for shared objects: objects may grow."""
SHARED_OBJECTS_IN_ORDER = SharedObjects(
    name="shared_objects_in_order",
    description="whole objects: as buffers become live, free object of the closest size",
    by=BY_START,
    rule=ObjectRule.CLOSEST,
    kernel=_closest,
)
"""TFLite's greedy in order: a new object only when none is free, so never more than are live at once."""
SHARED_OBJECTS_MIN_COST_FLOW = SharedObjects(
    name="shared_objects_min_cost_flow",
    description="whole objects: reuse as an assignment, least growth from buffer to buffer",
    kernel=_matched,
    most=MOST_MATCHED,
)
"""TFLite's minimum-cost flow. What is least is the sum of what each buffer adds to the one before it in its
object. What is small and grows again is counted twice, so the sizes are not the least there are."""
PARTITION = SharedObjects(
    name="partition",
    description="whole partitions: largest buffer first, fullest free one; holds for all sizes",
    source="tract (DeviceMemSchema)",
    by=BY_SIZE_ALONE,
    rule=ObjectRule.FULLEST,
    kernel=_fullest,
)
"""As `symbolic.partition` does it at a hint: the assignment stays valid whatever the sizes become."""
