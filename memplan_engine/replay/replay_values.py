"""A replay as plain values: one step for each decision, with what was looked at and why one was taken.

Of branch and bound a step is a node of its search tree: what it decides, what follows, and why it ends there.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.plan import Plan
from memplan_engine.problem import Ints, Problem
from memplan_engine.strategies.constructive.orders import FitRule, Key
from memplan_engine.strategies.shared_objects.assignment import ObjectRule

ROOT = -1


class Kind(StrEnum):
    """What a node decides."""

    ROOT = "root"
    PLACE = "place"
    FORCED = "forced"
    LIFT = "lift"


class Outcome(StrEnum):
    """What became of a node."""

    BRANCHED = "branched"
    TOO_FULL = "a column is too full"
    PAST_LATEST = "a buffer is past its latest offset"
    NOTHING_BELOW = "nothing is left that it could rest on"
    EXCHANGED = "as good with two buffers exchanged"
    REFUTED_BEFORE = "refuted before"
    SOLVED = "solved"


KINDS, OUTCOMES = tuple(Kind), tuple(Outcome)
PLACING = (Kind.PLACE, Kind.FORCED)
"""The kinds of nodes at which a buffer gets its offset."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node. Bytes unless said otherwise.

    `parent`: the node (a number) in whose state this was decided, ROOT for none; a search of the next
    independent part goes on from the solution of the one before. `offset`: where `buffer` was placed, or what
    it was lifted to. `bound`: the least arena that follows, more than the capacity for a node that is refuted
    there. `capacity`: what the search asked for. `step`: where in time the bound comes from, −1 for nowhere.
    `blocked`: the buffer that is past its latest offset, −1 for none. `independent`: into how many stretches
    of time that never meet what is left falls.
    """

    number: int
    parent: int
    depth: int
    kind: Kind
    buffer: int
    offset: int
    bound: int
    outcome: Outcome
    capacity: int
    step: int
    blocked: int
    independent: int


Tree = tuple[Node, ...]
"""All nodes in the order in which they were met. Each capacity that was asked for has a root of its own."""


UNPLACED = -1
NOBODY = -1


class Family(StrEnum):
    """What kind of decisions a strategy takes."""

    ORDER_FIT = "order × fit"
    LINEAR_SCAN = "linear scan"
    SHARED_OBJECTS = "shared objects"
    NO_REUSE = "no reuse"
    TREE = "branch and bound"


class CandidateState(StrEnum):
    """What became of a hole or an object that a step looked at."""

    TAKEN = "chosen"
    TOO_SMALL = "too small"
    NOT_LOWEST = "fits, but is not the lowest"
    NOT_TIGHTEST = "fits, but is not the tightest"
    LEFT_EMPTY = "fits, but the rule leaves holes empty"
    NOT_NEEDED = "only used when no hole fits"
    IN_USE = "in use"
    WOULD_GROW = "free, but would have to grow"
    LARGER = "free, but larger than need be"
    FARTHER = "free, but another is closer in size"
    IDLER = "free, but would lie idle for longer"
    LESS_FULL = "free, but another is fuller"
    NO_BETTER = "free, but no better than the one chosen"


STATES = tuple(CandidateState)
"""The state of each code in `Holes.state` and `Objects.state`."""


@dataclass(frozen=True, slots=True, eq=False)
class Holes:
    """The holes that all steps looked at, as columns: step k has the rows `first[k] … first[k + 1] − 1`, in
    order of offset, and looked at `more[k]` others. `possible[k]` of all of them had room.

    `low` and `high`: bytes, half-open; `high` is −1 where nothing lies above. `offset`: the first multiple
    of the buffer's alignment. `short`: the bytes that are missing then, 0 if none. `state`: codes, see
    STATES.
    """

    first: Ints
    more: Ints
    possible: Ints
    low: Ints
    high: Ints
    offset: Ints
    short: Ints
    state: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Objects:
    """The shared objects that all steps looked at, as columns like those of `Holes`.

    `number`: of the object, by when it was made. `size`: its bytes before the step. `value`: by what the
    strategy compares: bytes, how far the bytes are from the buffer's, idle steps to its nearest lifetime (−1
    when they meet), or the sum of its buffers' bytes.
    """

    first: Ints
    more: Ints
    possible: Ints
    number: Ints
    size: Ints
    value: Ints
    state: Ints


@dataclass(frozen=True, slots=True)
class Hole:
    """Free bytes `[low, high)` over the lifetime of a buffer, `high` None where nothing lies above.

    For a buffer with gaps they are counted as if it filled its size all the time: others may reach into what
    it leaves out. `offset`: where the buffer would begin. `short`: the bytes that are missing then.
    """

    low: int
    high: int | None
    offset: int
    short: int
    state: CandidateState

    @property
    def size(self) -> int | None:
        """Bytes; None where nothing lies above."""
        return None if self.high is None else self.high - self.low

    @property
    def reason(self) -> str:
        """What became of it, for people."""
        return f"too small by {self.short:,} B" if self.short else str(self.state)


@dataclass(frozen=True, slots=True)
class SharedObject:
    """An object of `size` bytes before the step; `value` as in `Objects`."""

    number: int
    size: int
    value: int
    state: CandidateState

    @property
    def reason(self) -> str:
        """What became of it, for people."""
        return str(self.state)


@dataclass(frozen=True, slots=True)
class Step:
    """One decision. Bytes unless said otherwise.

    `buffer` got `offset`. `key`: what put it there in the order, as (name, value). `live`: the buffers that
    had a place and are live with it; those of the active set in a linear scan. `holes` or `objects`: what
    was looked at; `more` others were not listed, and `possible` of all had room or were free. `object`: the
    shared object that it joined. `moved`: a buffer that made room, and its new offset. `line`: the line of
    `Replay.code` that acted. `node`: in a search tree, where it stands. `sentence`: why here, for people.
    """

    number: int
    buffer: int
    offset: int
    key: tuple[tuple[str, int], ...]
    live: tuple[int, ...]
    holes: tuple[Hole, ...]
    objects: tuple[SharedObject, ...]
    more: int
    possible: int
    object: int | None
    moved: tuple[int, int] | None
    arena_before: int
    arena_after: int
    bytes_left: int
    line: int
    node: Node | None
    sentence: str
    replay: ReplayColumns = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of the buffer."""
        return self.replay.problem.names[self.buffer] if self.buffer != NOBODY else ""

    @property
    def alive(self) -> tuple[int, ...]:
        """What `live` was called before; gone with version 1.0."""
        message = "Step.alive is now called live; the old name goes with version 1.0"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.live

    @property
    def label(self) -> str:
        """The buffer as people know it, module first."""
        return self.replay.labels[self.buffer] if self.buffer != NOBODY else ""

    @property
    def hole(self) -> Hole | None:
        """The hole that was taken; None where none was, or none was asked for."""
        return next((hole for hole in self.holes if hole.state is CandidateState.TAKEN), None)

    @property
    def joined(self) -> SharedObject | None:
        """The object that was taken; None for a new one."""
        return next(
            (candidate for candidate in self.objects if candidate.state is CandidateState.TAKEN), None
        )


@dataclass(frozen=True, eq=False)
class ReplayColumns:
    """How a strategy came to `plan`: columns with one value a step, read-only.

    `buffer` and `offset`: what was placed where. `arena`: the arena after the step. `bytes_left`: the sizes
    of all buffers that come later. `moved` and `moved_to`: a buffer that made room, NOBODY for none, and its
    new offset. `line`: the line of `code` that acted. `keys`: what the order is made of. `holes` or
    `shared`: what was looked at. `tree`: the search tree; there a step is a node, and what is placed lies on
    the way to it from the root.
    """

    plan: Plan
    family: Family
    fit: FitRule | None
    buffer: Ints
    offset: Ints
    arena: Ints
    bytes_left: Ints
    moved: Ints
    moved_to: Ints
    line: Ints
    code: tuple[str, ...]
    keys: tuple[Key, ...]
    holes: Holes | None = None
    shared: Objects | None = None
    tree: Tree | None = None
    rule: ObjectRule | None = None

    def __len__(self) -> int:
        return len(self.buffer)

    @property
    def problem(self) -> Problem:
        """What was planned."""
        return self.plan.problem

    @property
    def labels(self) -> tuple[str, ...]:
        """The buffers as people know them, module first."""
        return buffer_names(self.problem)

    def placed_at(self, step: int) -> Ints:
        """The offset of each buffer after `step`, UNPLACED for those to come; −1 for before the first.

        Shared objects lie where they lie in the end.
        """
        placed = np.full(len(self.problem), UNPLACED, dtype=np.int64)
        if self.tree is not None:
            while step != ROOT:
                node = self.tree[step]
                if node.kind in PLACING:
                    placed[node.buffer] = node.offset
                step = node.parent
            return placed
        placed[self.buffer[: step + 1]] = self.offset[: step + 1]
        for change in np.flatnonzero(self.moved[: step + 1] != NOBODY):
            placed[self.moved[change]] = self.moved_to[change]
        return placed
