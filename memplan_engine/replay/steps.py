"""A replay and its steps: each step is a value of its own, made from the columns when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.replay.replay_values import (
    NOBODY,
    VERDICTS,
    Family,
    Hole,
    Holes,
    Objects,
    ReplayColumns,
    SharedObject,
    Step,
)
from memplan_engine.replay.sentences import sentence


class Replay(ReplayColumns):
    """How a strategy came to a plan, with `steps`."""

    @cached_property
    def steps(self) -> Steps:
        """The steps as values of their own, each made when it is asked for."""
        return Steps(self)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a replay, as a sequence."""

    replay: Replay

    def __len__(self) -> int:
        return len(self.replay)

    def __getitem__(self, number: int) -> Step:
        if not -len(self) <= number < len(self):
            raise IndexError(f"step {number} of {len(self)}")
        return make_step(self.replay, number % len(self))

    def __iter__(self) -> Iterator[Step]:
        return (self[number] for number in range(len(self)))


def make_step(replay: ReplayColumns, number: int) -> Step:
    """Step `number` (0 …): O(buffers)."""
    buffer, objects = int(replay.buffer[number]), replay.plan.objects
    holes = _holes(replay.holes, number) if replay.holes else ()
    shared = _objects(replay.shared, number) if replay.shared else ()
    columns = replay.holes or replay.shared
    mover = int(replay.moved[number])
    node = replay.tree[number] if replay.tree else None
    before = node.parent if node else number - 1
    step = Step(
        number=number,
        buffer=buffer,
        offset=int(replay.offset[number]),
        key=tuple((key.name, int(key.values[buffer])) for key in replay.keys) if buffer != NOBODY else (),
        alive=tuple(_alive(replay, number, buffer).tolist()) if buffer != NOBODY else (),
        holes=holes,
        objects=shared,
        more=int(columns.more[number]) if columns else 0,
        possible=int(columns.possible[number]) if columns else 0,
        object=None if objects is None else int(objects[buffer]),
        moved=None if mover == NOBODY else (mover, int(replay.moved_to[number])),
        arena_before=int(replay.arena[before]) if before >= 0 else 0,
        arena_after=int(replay.arena[number]),
        bytes_left=int(replay.bytes_left[number]),
        line=int(replay.line[number]),
        node=node,
        sentence="",
        replay=replay,
    )
    return replace(step, sentence=sentence(step))


def meet(problem: Problem, buffers: Ints, buffer: int) -> Ints:
    """Those of `buffers` whose lifetimes meet that of `buffer`, gaps included."""
    start, end = problem.start[buffers], problem.end[buffers]
    others: Ints = buffers[
        (start < problem.end[buffer]) & (problem.start[buffer] < end) & (buffers != buffer)
    ]
    return others


def _alive(replay: ReplayColumns, number: int, buffer: int) -> Ints:
    problem = replay.problem
    if replay.tree is not None:
        return meet(problem, np.flatnonzero(replay.placed_at(number) >= 0), buffer)
    earlier: Ints = meet(problem, replay.buffer[:number], buffer)
    if replay.family is Family.LINEAR_SCAN:
        # Buffers at fixed offsets lie below the scan, and what has no bytes never becomes active.
        earlier = earlier[(problem.fixed[earlier] == FREE) & (problem.size[earlier] > 0)]
    return earlier


def _holes(columns: Holes, number: int) -> tuple[Hole, ...]:
    rows = slice(int(columns.first[number]), int(columns.first[number + 1]))
    low, high, offset, short, verdict = (
        column[rows].tolist()
        for column in (columns.low, columns.high, columns.offset, columns.short, columns.verdict)
    )
    return tuple(
        Hole(low[row], None if high[row] < 0 else high[row], offset[row], short[row], VERDICTS[verdict[row]])
        for row in range(len(low))
    )


def _objects(columns: Objects, number: int) -> tuple[SharedObject, ...]:
    rows = slice(int(columns.first[number]), int(columns.first[number + 1]))
    each = (
        column[rows].tolist() for column in (columns.number, columns.size, columns.value, columns.verdict)
    )
    return tuple(
        SharedObject(name, size, value, VERDICTS[verdict])
        for name, size, value, verdict in zip(*each, strict=True)
    )
