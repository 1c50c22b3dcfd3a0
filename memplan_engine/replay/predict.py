"""A learner says where a buffer should go: does the strategy agree, and if not, what is wrong?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.pieces import cut
from memplan_engine.problem import FREE, select
from memplan_engine.replay.replay_values import Family, Hole, Step
from memplan_engine.replay.steps import meet
from memplan_engine.strategies.constructive.order_fit import Fit
from memplan_engine.units import format_bytes


class Agreement(StrEnum):
    """What the strategy says of an offset."""

    AGREES = "agrees"
    NO_OFFSET = "no offset"
    MISALIGNED = "misaligned"
    FIXED = "fixed"
    OVERLAPS = "overlaps"
    OTHER_OBJECT = "other object"
    OTHER_HOLE = "other hole"
    HIGHER = "higher than needed"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`agrees` is True for the strategy's own offset only. `overlaps`: the placed buffers in the way."""

    agreement: Agreement
    sentence: str
    overlaps: tuple[int, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the strategy put it there, too."""
        return self.agreement is Agreement.AGREES


def agrees(step: Step, offset: int) -> Judgement:
    """What the strategy says when somebody would put the buffer of `step` at `offset` bytes.

    For shared objects any offset inside the object (where it lies in the end) stands for the object.

    Raises
    ------
    InputError: a node of a search tree, where nothing is placed for good.
    """
    replay, problem = step.replay, step.replay.problem
    if replay.family is Family.TREE:
        raise InputError(problem.name, "replay", "a search tree", "a strategy that places buffers for good")
    if offset == step.offset:
        return Judgement(Agreement.AGREES, f"Yes. {step.sentence}")
    if offset < 0 or offset + int(problem.size[step.buffer]) >= 2**63:
        return Judgement(Agreement.NO_OFFSET, "No: an offset is 0 bytes or more, and below 2^63.")
    if replay.family is Family.SHARED_OBJECTS:
        return _object(step, offset)
    if problem.fixed[step.buffer] != FREE:
        at = format_bytes(step.offset)
        return Judgement(Agreement.FIXED, f"No: {step.name} has the fixed offset {at}.")
    alignment = int(problem.alignment[step.buffer])
    if offset % alignment:
        near = offset - offset % alignment
        told = (
            f"No: offsets of {step.name} are multiples of {alignment:,} B; the next one below is {near:,} B."
        )
        return Judgement(Agreement.MISALIGNED, told)
    met = in_the_way(step, offset)
    if met:
        return Judgement(Agreement.OVERLAPS, _overlapping(step, offset, met), met)
    return _elsewhere(step, offset)


def in_the_way(step: Step, offset: int) -> tuple[int, ...]:
    """The buffers placed before `step` that would share bytes with its buffer at `offset`, lowest first."""
    problem, placed = step.replay.problem, step.replay.placed_at(step.number - 1)
    near = meet(problem, np.flatnonzero(placed >= 0), step.buffer)
    rows = np.concatenate([[step.buffer], near])
    own = select(problem, rows)
    pieces, lows = cut(own), np.concatenate([[offset], placed[near]])
    low, high = lows[pieces.owner] + pieces.low, lows[pieces.owner] + pieces.high
    mine = slice(0, int(pieces.first[1]))
    meets = (
        (pieces.start[:, None] < pieces.end[mine])
        & (pieces.start[mine] < pieces.end[:, None])
        & (low[:, None] < high[mine])
        & (low[mine] < high[:, None])
        # A piece without bytes meets nothing, even inside another.
        & (low < high)[:, None]
        & (low[mine] < high[mine])
    )
    owners = np.unique(pieces.owner[meets.any(axis=1)])
    found = near[owners[owners > 0] - 1]
    return tuple(found[np.argsort(placed[found], kind="stable")].tolist())


def _overlapping(step: Step, offset: int, met: tuple[int, ...]) -> str:
    names = step.replay.problem.names
    others = f" and {len(met) - 1} more" if len(met) > 1 else ""
    told = f"No: there it overlaps {names[met[0]]}{others}, alive at the same time."
    hole = next((hole for hole in step.holes if hole.short and _inside(hole, offset)), None)
    if hole is None or hole.size is None:
        return told
    return f"{told} The hole of {format_bytes(hole.size)} is too small by {hole.short:,} B."


def _inside(hole: Hole, offset: int) -> bool:
    return hole.low <= offset and (hole.high is None or offset < hole.high)


def _holds(step: Step, hole: Hole, offset: int) -> bool:
    size = int(step.replay.problem.size[step.buffer])
    return hole.low <= offset and (hole.high is None or offset + size <= hole.high)


def _elsewhere(step: Step, offset: int) -> Judgement:
    """It would be valid there, and the strategy goes somewhere else."""
    replay, own = step.replay, format_bytes(step.offset)
    valid = "It would fit there, but"
    if replay.family is Family.NO_REUSE:
        return Judgement(_side(step, offset), f"{valid} without reuse it goes behind all others, to {own}.")
    at = next((hole for hole in step.holes if _holds(step, hole, offset)), None)
    if at is not None and at is step.hole:
        higher = format_bytes(offset - step.offset)
        return Judgement(
            Agreement.HIGHER, f"The right hole, but {higher} higher than needed: it goes to {own}."
        )
    if replay.family is Family.LINEAR_SCAN:
        return Judgement(_side(step, offset), f"{valid} the scan puts it at {own}. {step.sentence}")
    if replay.fit is Fit.TOP:
        return Judgement(
            _side(step, offset), f"{valid} this rule leaves holes empty: it goes above the others, to {own}."
        )
    if at is None or step.hole is None:
        return Judgement(_side(step, offset), f"{valid} the rule puts it at {own}.")
    return Judgement(Agreement.OTHER_HOLE, f"{valid} {_why_not(step, at)}: it goes to {own}.")


def _side(step: Step, offset: int) -> Agreement:
    return Agreement.HIGHER if offset > step.offset else Agreement.LOWER


def _why_not(step: Step, at: Hole) -> str:
    taken = step.hole
    assert taken is not None
    if at.size is None:
        return f"a hole of {format_bytes(taken.size or 0)} at {format_bytes(taken.low)} holds it, too"
    if step.replay.fit is Fit.FIRST:
        return f"that is not the lowest hole that holds it, which begins at {format_bytes(taken.low)}"
    if at.size == taken.size:
        return f"the hole at {format_bytes(taken.low)} is as tight, and lower"
    wider, tighter = format_bytes(at.size), format_bytes(taken.size or 0)
    return f"that hole has {wider}, and the one at {format_bytes(taken.low)} is tighter with {tighter}"


def _object(step: Step, offset: int) -> Judgement:
    replay, objects = step.replay, step.replay.plan.objects
    assert objects is not None
    ends = replay.plan.offsets + replay.problem.size
    hits = np.flatnonzero((replay.plan.offsets <= offset) & (offset < ends))
    if len(hits) and int(objects[hits[0]]) == step.object:
        return Judgement(Agreement.AGREES, f"Yes. {step.sentence}")
    if not len(hits):
        return Judgement(Agreement.OTHER_OBJECT, f"No: no object is there. {step.sentence}")
    number = int(objects[hits[0]])
    seen = next((each for each in step.objects if each.number == number), None)
    why = str(seen.verdict) if seen else "not free, or not made yet"
    return Judgement(Agreement.OTHER_OBJECT, f"No: object {number} is {why}. {step.sentence}")
