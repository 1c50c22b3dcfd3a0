"""A learner places buffers by hand: a whole problem against a strategy, or the buffer of one step.

Of a partial placement it is said what it needs, where buffers collide, and whether it beats a strategy; of
one offset whether the strategy agrees, and if not, what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.errors import InputError, PlanError
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.problem import FREE, Ints, Problem, cut, int_column, select
from memplan_engine.profile import load_of
from memplan_engine.replay.replay_values import UNPLACED, Family, Hole, Step
from memplan_engine.replay.steps import meet
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.orders import FitRule
from memplan_engine.units import format_bytes, format_percent, format_span

MOST_BUFFERS = 500
SECONDS = 2.0
GREEDY = "greedy_by_size"
SCAN = (
    "a scan takes the smallest free range that holds it, else the place of a buffer that gives way, "
    "else the end"
)


@dataclass(frozen=True, slots=True, eq=False)
class Exercise:
    """A problem to be placed by hand, with what it is measured against: a greedy plan, and the best one that
    a search found."""

    problem: Problem
    greedy: Plan
    best: Plan

    @property
    def rival(self) -> Plan | None:
        """The greedy plan, for as long as there is something to beat: one that is proved the best would give
        the answer away."""
        return None if self.greedy.arena_bytes == self.optimum_bytes else self.greedy

    @property
    def bound_bytes(self) -> int:
        """The most bytes live at a step: no placement needs less. What a search has proved beyond that would
        give the answer away."""
        return load_of(self.problem).peak

    @property
    def optimum_bytes(self) -> int | None:
        """The smallest arena there is; None while nobody knows."""
        return self.best.arena_bytes if self.best.optimal else None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two buffers that share the bytes `[low, high)` in the steps `[start, end)`."""

    one: int
    other: int
    start: int
    end: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a placement by hand has come to; bytes.

    `placed`: how many buffers have an offset; `bytes_left`: the sizes of the others. `misaligned`: buffers at
    no multiple of their alignment; `displaced`: buffers that are not where they are fixed. `valid`: none of
    these and no conflict. What it beats counts only when it is `complete`: valid, and every buffer has a
    place.
    """

    arena_bytes: int
    placed: int
    bytes_left: int
    conflicts: tuple[Conflict, ...]
    misaligned: tuple[int, ...]
    displaced: tuple[int, ...]
    gap_bytes: int
    gap: float
    valid: bool
    complete: bool
    beats_greedy: bool
    is_optimal: bool
    sentence: str


def make_exercise(
    problem: Problem, greedy: str = GREEDY, seconds: float = SECONDS, limits: SolveLimits | None = None
) -> Exercise:
    """Return the exercise of `problem`. `limits` of the search for the optimum replace `seconds`.

    Raises
    ------
    PlanError: more than MOST_BUFFERS buffers, or what `make_plan` raises. MemplanError: no such strategy.
    """
    if len(problem) > MOST_BUFFERS:
        raise PlanError(
            f"{problem.name}: {len(problem):,} buffers, and an exercise has {MOST_BUFFERS:,} at most"
        )
    best = make_plan(problem, "exact", limits=limits or SolveLimits(seconds))
    return Exercise(problem, make_plan(problem, greedy), best)


def judge(exercise: Exercise, offsets: Mapping[str, int] | Sequence[int] | Ints) -> Attempt:
    """The state of a placement by hand: offsets in bytes by name, or one a buffer with UNPLACED for those to
    come. O(pieces²), for as few as people place.

    Raises
    ------
    InputError: a name that is none, a column of another length, or an offset below 0 or past 2^63.
    """
    problem = exercise.problem
    column = _column(problem, offsets)
    rows = np.flatnonzero(column != UNPLACED)
    conflicts = _conflicts(problem, column, rows)
    misaligned = rows[column[rows] % problem.alignment[rows] != 0]
    displaced = rows[(problem.fixed[rows] != FREE) & (problem.fixed[rows] != column[rows])]
    arena, bound = int((column + problem.size)[rows].max(initial=0)), exercise.bound_bytes
    valid = not conflicts and not len(misaligned) and not len(displaced)
    complete = valid and len(rows) == len(problem)
    return Attempt(
        arena_bytes=arena,
        placed=len(rows),
        bytes_left=int(problem.size.sum() - problem.size[rows].sum()),
        conflicts=conflicts,
        misaligned=tuple(misaligned.tolist()),
        displaced=tuple(displaced.tolist()),
        gap_bytes=arena - bound,
        gap=arena / bound - 1 if bound else 0.0,
        valid=valid,
        complete=complete,
        beats_greedy=complete and arena < exercise.greedy.arena_bytes,
        is_optimal=complete and arena == exercise.optimum_bytes,
        sentence=_sentence(exercise, column, conflicts, misaligned, displaced),
    )


def _column(problem: Problem, offsets: Mapping[str, int] | Sequence[int] | Ints) -> Ints:
    if isinstance(offsets, Mapping):
        places = {name: row for row, name in enumerate(problem.names)}
        column = np.full(len(problem), UNPLACED, dtype=np.int64)
        for name, offset in offsets.items():
            if name not in places:
                raise InputError(problem.name, "offsets", f"buffer {name!r}", "buffers of the problem")
            column[places[name]] = int_column([offset], "offset", problem.name)[0]
    else:
        column = int_column(offsets, "offsets", problem.name)
    if len(column) != len(problem):
        raise InputError(problem.name, "offsets", f"{len(column)} values", f"{len(problem)}, one a buffer")
    if (column < UNPLACED).any() or (column > 2**63 - 1 - problem.size).any():
        raise InputError(problem.name, "offsets", "an offset out of range", "0 or more bytes, below 2^63")
    return column


def _conflicts(problem: Problem, column: Ints, rows: Ints) -> tuple[Conflict, ...]:
    """Every pair of pieces of two placed buffers that share bytes, in order of the buffers and of time."""
    pieces = cut(select(problem, rows))
    base = column[rows][pieces.owner]
    low, high = base + pieces.low, base + pieces.high
    first, last = np.maximum.outer(pieces.start, pieces.start), np.minimum.outer(pieces.end, pieces.end)
    bottom, top = np.maximum.outer(low, low), np.minimum.outer(high, high)
    other_owner = np.less.outer(pieces.owner, pieces.owner)
    one, other = np.nonzero((first < last) & (bottom < top) & other_owner)
    return tuple(
        Conflict(
            int(rows[pieces.owner[a]]),
            int(rows[pieces.owner[b]]),
            *(int(edge[a, b]) for edge in (first, last, bottom, top)),
        )
        for a, b in zip(one.tolist(), other.tolist(), strict=True)
    )


def _sentence(
    exercise: Exercise, column: Ints, conflicts: tuple[Conflict, ...], misaligned: Ints, displaced: Ints
) -> str:
    problem, names = exercise.problem, buffer_names(exercise.problem)
    if conflicts:
        worst = conflicts[0]
        when = format_span(worst.start, worst.end)
        first, last = worst.low, worst.high - 1
        where = f"byte {first:,}" if first == last else f"bytes {first:,} to {last:,}"
        return f"{names[worst.one]} and {names[worst.other]} share {where} in {when}."
    if len(misaligned):
        each = int(misaligned[0])
        return f"{names[each]} must begin at a multiple of {int(problem.alignment[each]):,} B."
    if len(displaced):
        each = int(displaced[0])
        return f"{names[each]} is fixed at {format_bytes(int(problem.fixed[each]))}."
    missing = int(np.count_nonzero(column == UNPLACED))
    arena = int(np.where(column == UNPLACED, 0, column + problem.size).max(initial=0))
    if missing:
        bound = format_bytes(exercise.bound_bytes)
        return (
            f"{missing:,} to go. The arena has {format_bytes(arena)}; no placement needs less than {bound}."
        )
    return _finished(exercise, arena)


def _finished(exercise: Exercise, arena: int) -> str:
    sentence = f"Complete, with {format_bytes(arena)}"
    if arena == exercise.optimum_bytes:
        return f"{sentence}: that is the optimum."
    against, least = "", exercise.bound_bytes
    if rival := exercise.rival:
        more = arena - rival.arena_bytes
        than = f"{format_bytes(abs(more))} {'less' if more < 0 else 'more'} than" if more else "as much as"
        against = f"{than} {rival.strategy}, and "
    over = f"{format_percent(arena / least - 1)} over" if least else "over"
    bound = f"the lower bound of {format_bytes(least)}"
    return f"{sentence}: {against}{over} {bound}."


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
    """What the strategy says when somebody would put the buffer of `step` at `offset` bytes: of any but its
    own what is wrong with it, not where the buffer goes (that is `step.sentence`).

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
        return Judgement(Agreement.FIXED, f"No: {step.label} has the fixed offset {at}.")
    alignment = int(problem.alignment[step.buffer])
    if offset % alignment:
        near = offset - offset % alignment
        explanation = (
            f"No: offsets of {step.label} are multiples of {alignment:,} B; the next one below is {near:,} B."
        )
        return Judgement(Agreement.MISALIGNED, explanation)
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
    met = near[owners[owners > 0] - 1]
    return tuple(met[np.argsort(placed[met], kind="stable")].tolist())


def _overlapping(step: Step, offset: int, met: tuple[int, ...]) -> str:
    names = step.replay.labels
    others = f" and {len(met) - 1} more" if len(met) > 1 else ""
    sentence = f"No: there it overlaps {names[met[0]]}{others}, live at the same time."
    hole = next((hole for hole in step.holes if hole.short and _holds(hole, offset, 1)), None)
    if hole is None or hole.size is None:
        return sentence
    return f"{sentence} The hole of {format_bytes(hole.size)} is too small by {hole.short:,} B."


def _holds(hole: Hole, offset: int, nbytes: int) -> bool:
    return hole.low <= offset and (hole.high is None or offset + nbytes <= hole.high)


def _elsewhere(step: Step, offset: int) -> Judgement:
    """It would be valid there, and the strategy goes somewhere else."""
    replay = step.replay
    valid = "It would fit there, but"
    if replay.family is Family.NO_REUSE:
        return Judgement(_side(step, offset), f"{valid} without reuse it goes behind all others.")
    size = int(replay.problem.size[step.buffer])
    at = next((hole for hole in step.holes if _holds(hole, offset, size)), None)
    if at is not None and at is step.hole:
        higher = format_bytes(offset - step.offset)
        return Judgement(Agreement.HIGHER, f"The right hole, but {higher} higher than needed.")
    if replay.family is Family.LINEAR_SCAN:
        return Judgement(_side(step, offset), f"{valid} {SCAN}.")
    if replay.fit is FitRule.TOP:
        return Judgement(
            _side(step, offset), f"{valid} this rule leaves holes empty and goes above the others."
        )
    if at is None or step.hole is None:
        return Judgement(_side(step, offset), f"{valid} the rule puts it elsewhere.")
    return Judgement(Agreement.OTHER_HOLE, f"{valid} {_why_not(step, at)}.")


def _side(step: Step, offset: int) -> Agreement:
    return Agreement.HIGHER if offset > step.offset else Agreement.LOWER


def _why_not(step: Step, at: Hole) -> str:
    hole = step.hole
    assert hole is not None
    if at.size is None:
        return "there is a hole that holds it, too"
    if step.replay.fit is FitRule.FIRST:
        return "that is not the lowest hole that holds it"
    if at.size == hole.size:
        return "another hole is as tight, and lower"
    return f"that hole has {format_bytes(at.size)}, and a tighter one holds it, too"


def _object(step: Step, offset: int) -> Judgement:
    replay, objects = step.replay, step.replay.plan.objects
    assert objects is not None
    ends = replay.plan.offsets + replay.problem.size
    hits = np.flatnonzero((replay.plan.offsets <= offset) & (offset < ends))
    if len(hits) and int(objects[hits[0]]) == step.object:
        return Judgement(Agreement.AGREES, f"Yes. {step.sentence}")
    if not len(hits):
        return Judgement(Agreement.OTHER_OBJECT, "No: no object is there.")
    number = int(objects[hits[0]])
    shared_object = next((candidate for candidate in step.objects if candidate.number == number), None)
    why = str(shared_object.state) if shared_object else "not free, or not made yet"
    return Judgement(Agreement.OTHER_OBJECT, f"No: object {number} is {why}.")
