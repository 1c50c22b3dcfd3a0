"""A replay and its steps: each step is a value of its own, made from the columns when it is asked for.

Why here is said in a few sentences, put together from the step's figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memplan_engine.problem import FREE, Ints, Problem, cut
from memplan_engine.replay.replay_values import (
    NOBODY,
    STATES,
    Family,
    Hole,
    Holes,
    Kind,
    Node,
    Objects,
    Outcome,
    ReplayColumns,
    SharedObject,
    Step,
)
from memplan_engine.strategies.constructive.orders import FitRule
from memplan_engine.strategies.shared_objects.assignment import ObjectRule
from memplan_engine.units import format_bytes


def sentence(step: Step) -> str:
    """Why the buffer of `step` got its offset."""
    replay, problem = step.replay, step.replay.problem
    if step.node is not None:
        return f"{_node_decision(step, step.node)} {_node_outcome(step, step.node)}"
    if problem.fixed[step.buffer] != FREE:
        return f"{step.label} has a fixed offset, and those come first. {_outcome(step)}"
    parts = [_opening(step)]
    if replay.family is Family.NO_REUSE:
        parts.append("It goes behind all that came before it.")
    elif replay.family is Family.SHARED_OBJECTS:
        parts.append(_joining(step))
    elif not problem.size[step.buffer]:
        parts.append("It has no bytes and is in nobody's way.")
    elif replay.family is Family.LINEAR_SCAN:
        parts += [_free_list(step), _scanning(step)]
    else:
        parts += [_meeting(step), _fitting(step)]
    return " ".join([*parts, *_aligning(step), _outcome(step)])


def ordinal(number: int) -> str:
    """ "1st", "2nd", "3rd", "11th"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _opening(step: Step) -> str:
    keys = step.replay.keys
    text = f"{step.label} comes {ordinal(step.number + 1)} of {len(step.replay):,}"
    if not keys or step.replay.family is Family.NO_REUSE:
        return f"{text}."
    then = keys[0].joint and keys[0].joint + keys[1].words(step.buffer)
    return f"{text} by {keys[0].name}, {keys[0].words(step.buffer)}{then}."


def _outcome(step: Step) -> str:
    at, before, after = (
        format_bytes(nbytes) for nbytes in (step.offset, step.arena_before, step.arena_after)
    )
    arena = (
        f"stays at {after}" if step.arena_before == step.arena_after else f"grows from {before} to {after}"
    )
    return f"Offset {at}; the arena {arena}."


def _aligning(step: Step) -> list[str]:
    hole = step.hole
    if not hole or hole.offset == hole.low:
        return []
    alignment = format_bytes(int(step.replay.problem.alignment[step.buffer]))
    return [f"Its alignment of {alignment} moves it up from {format_bytes(hole.low)}."]


def _meeting(step: Step) -> str:
    if not step.number:
        return "Nothing is placed yet."
    if not step.live and step.number == 1:
        return "The one placed buffer is not live with it."
    if not step.live:
        return f"None of the {step.number:,} placed buffers is live with it."
    if len(step.live) == step.number:
        all_of = "The one placed buffer is" if step.number == 1 else f"All {step.number:,} placed buffers are"
        return f"{all_of} live with it."
    verb = "is" if len(step.live) == 1 else "are"
    return f"{len(step.live):,} of the {step.number:,} placed buffers {verb} live with it."


def _fitting(step: Step) -> str:
    bounded = len(step.holes) + step.more - 1
    hole = step.hole
    if hole and hole.size is not None:
        return _in_hole(step, hole, bounded, step.possible - 1, "hole")
    if step.replay.fit is FitRule.TOP and bounded:
        return f"This rule leaves holes empty ({bounded:,} here): it goes above all that is live with it."
    if bounded:
        return f"{_none_holds(step, bounded, 'hole')}, so it goes above what is live with it."
    if not hole or not hole.low:
        return "Nothing is in its way: it goes to the bottom."
    return "There is no hole, so it goes above what is live with it."


def _in_hole(step: Step, hole: Hole, holes: int, possible: int, word: str) -> str:
    where = f"of {format_bytes(hole.size or 0)} at {format_bytes(hole.low)}"
    if holes == 1:
        return f"The only {word}, {where}, holds it."
    if possible == 1:
        return f"Of {_count(holes, word)} only that {where} holds it."
    which = "the tightest" if step.replay.fit is FitRule.BEST else "the lowest"
    rest = f" ({_count(holes - possible, 'other is', 'others are')} too small)" if holes > possible else ""
    return f"Of the {possible:,} {word}s that hold it{rest}, that {where} is {which}."


def _none_holds(step: Step, holes: int, word: str) -> str:
    text = f"The only {word} does not hold it" if holes == 1 else f"None of the {holes:,} {word}s holds it"
    least = min((hole.short for hole in step.holes if hole.short), default=0)
    if not least or step.more:
        return text
    return f"{text} ({'it' if holes == 1 else 'the nearest'} is too small by {format_bytes(least)})"


def _free_list(step: Step) -> str:
    ranges = len(step.holes) + step.more
    active = _count(len(step.live), "buffer is", "buffers are") if step.live else "No buffer is"
    free = f"has {_count(ranges, 'range')}" if ranges else "is empty"
    return f"{active} active, and the free list {free}."


def _scanning(step: Step) -> str:
    problem, ranges = step.replay.problem, len(step.holes) + step.more
    if step.hole:
        return _in_hole(step, step.hole, ranges, step.possible, "range")
    first = f"{_none_holds(step, ranges, 'range')}. " if ranges else ""
    if not step.live:
        return f"{first}It goes to the end."
    if step.moved is None:
        return f"{first}No active buffer that ends later is large enough to give way: it goes to the end."
    mover, to = step.moved
    return (
        f"{first}Of the active buffers that are large enough {step.replay.labels[mover]} ends last, at step "
        f"{int(problem.end[mover]):,}: it moves to {format_bytes(to)}, and {step.label} takes its place."
    )


_WHY_THIS: dict[ObjectRule | None, str] = {
    ObjectRule.CLOSEST: "closest in size",
    ObjectRule.LEAST_IDLE: "the one that lies idle next to it for the fewest steps",
    ObjectRule.FULLEST: "the fullest",
}


def _joining(step: Step) -> str:
    objects, free, rule = len(step.objects) + step.more, step.possible, step.replay.rule
    if not objects:
        none = "No object is free" if step.number else "There is no object yet"
        return f"{none}: it gets object {step.object}."
    counted = _count(objects, "free object") if rule is ObjectRule.CLOSEST else ""
    opening = f"There {'is' if objects == 1 else 'are'} {counted}." if counted else _free_of(objects, free)
    joined = step.joined
    if not joined:
        return f"{opening[:-1]}: it gets a new one, number {step.object}."
    size = int(step.replay.problem.size[step.buffer])
    default = "the smallest that is large enough" if joined.size >= size else "the largest"
    why = _WHY_THIS.get(rule, default) if free > 1 else ""
    grows = f", which grows to {format_bytes(size)}" if joined.size < size else ""
    details = f"{format_bytes(joined.size)}{', ' + why if why else ''}"
    return f"{opening} It joins object {joined.number} ({details}){grows}."


def _free_of(objects: int, free: int) -> str:
    if objects == 1:
        return f"The only object is {'free' if free else 'in use'}."
    return f"{free if free else 'None'} of the {objects:,} objects {'are' if free > 1 else 'is'} free."


def _node_decision(step: Step, node: Node) -> str:
    if node.kind is Kind.ROOT:
        return f"Is there a placement within {format_bytes(node.capacity)}?"
    at = format_bytes(node.offset)
    if node.kind is Kind.PLACE:
        return f"{step.label} at its low, {at}."
    if node.kind is Kind.FORCED:
        return (
            f"{step.label} at its low, {at}, and nowhere else need be tried: what is left beside it lives "
            "within its lifetime and lies no lower."
        )
    if node.outcome is Outcome.NOTHING_BELOW:
        return f"{step.label} not at its low."
    return f"{step.label} not at its low: it rests on another buffer, at {at} or higher."


def _node_outcome(step: Step, node: Node) -> str:
    labels, capacity = step.replay.labels, format_bytes(node.capacity)
    if node.outcome is Outcome.SOLVED:
        return f"Solved: every buffer has its offset, within {capacity}."
    if node.outcome is Outcome.TOO_FULL:
        return f"Refuted: what is live at step {node.step:,} then needs {format_bytes(node.bound)}."
    if node.outcome is Outcome.PAST_LATEST:
        return f"Refuted: that lifts {labels[node.blocked]} so high that it would end above {capacity}."
    if node.outcome is Outcome.EXCHANGED:
        return (
            f"Refuted: {labels[node.blocked]} could then rest on {step.label} alone, and all is as good with "
            "the two exchanged."
        )
    if node.outcome is Outcome.NOTHING_BELOW:
        return "Refuted: nothing is left that it could rest on."
    if node.outcome is Outcome.REFUTED_BEFORE:
        return "Refuted before: the same buffers were left, with the same lows."
    lead = f"The arena then has at least {format_bytes(node.bound)}."
    if node.independent > 1:
        return f"{lead} What is left falls into {node.independent} stretches of time that never meet."
    return lead


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
        live=tuple(_live(replay, number, buffer).tolist()) if buffer != NOBODY else (),
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


IGNORE_GAPS = (Family.LINEAR_SCAN, Family.SHARED_OBJECTS)
"""Strategies that take a buffer for live in its gaps, too."""


def meet(problem: Problem, buffers: Ints, buffer: int) -> Ints:
    """Return those of `buffers` that are live at a step at which `buffer` is: O(buffers and their gaps)."""
    pieces = cut(problem)
    near = np.zeros(len(problem), np.bool_)
    for piece in range(pieces.first[buffer], pieces.first[buffer + 1]):
        meeting = (pieces.start < pieces.end[piece]) & (pieces.start[piece] < pieces.end)
        near[pieces.owner[meeting]] = True
    near[buffer] = False
    others: Ints = buffers[near[buffers]]
    return others


def _live(replay: ReplayColumns, number: int, buffer: int) -> Ints:
    problem = replay.problem
    if replay.family in IGNORE_GAPS:
        problem = replace(problem, gaps={})
    if replay.tree is not None:
        return meet(problem, np.flatnonzero(replay.placed_at(number) >= 0), buffer)
    earlier: Ints = meet(problem, replay.buffer[:number], buffer)
    if replay.family is Family.LINEAR_SCAN:
        # Buffers at fixed offsets lie below the scan, and what has no bytes never becomes active.
        earlier = earlier[(problem.fixed[earlier] == FREE) & (problem.size[earlier] > 0)]
    return earlier


def _holes(columns: Holes, number: int) -> tuple[Hole, ...]:
    rows = _rows(columns, number, "low", "high", "offset", "short", "state")
    return tuple(
        Hole(low, None if high < 0 else high, offset, short, STATES[state])
        for low, high, offset, short, state in rows
    )


def _objects(columns: Objects, number: int) -> tuple[SharedObject, ...]:
    rows = _rows(columns, number, "number", "size", "value", "state")
    return tuple(SharedObject(name, size, value, STATES[state]) for name, size, value, state in rows)


def _rows(columns: Holes | Objects, number: int, *names: str) -> Iterator[tuple[int, ...]]:
    """What step `number` looked at: a row each, with the values of the columns `names`."""
    rows = slice(int(columns.first[number]), int(columns.first[number + 1]))
    return zip(*(getattr(columns, name)[rows].tolist() for name in names), strict=True)
