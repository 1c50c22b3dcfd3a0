"""The search tree of branch and bound: what each node decides, what follows, and why it ends there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from memplan_engine.problem import Ints

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


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """All nodes in the order in which they were met, as read-only columns; see `Node`. `kind` and `outcome`
    are codes, see KINDS and OUTCOMES. Each capacity that was asked for has a root of its own."""

    parent: Ints
    depth: Ints
    kind: Ints
    buffer: Ints
    offset: Ints
    bound: Ints
    outcome: Ints
    capacity: Ints
    step: Ints
    blocked: Ints
    independent: Ints

    def __len__(self) -> int:
        return len(self.parent)

    def node(self, number: int) -> Node:
        """The node `number`."""
        return Node(
            number,
            int(self.parent[number]),
            int(self.depth[number]),
            KINDS[int(self.kind[number])],
            int(self.buffer[number]),
            int(self.offset[number]),
            int(self.bound[number]),
            OUTCOMES[int(self.outcome[number])],
            int(self.capacity[number]),
            int(self.step[number]),
            int(self.blocked[number]),
            int(self.independent[number]),
        )

    def placed_at(self, number: int) -> Iterator[tuple[int, int]]:
        """The buffers that are placed at a node, with their offsets, the latest first."""
        while number != ROOT:
            if KINDS[int(self.kind[number])] in (Kind.PLACE, Kind.FORCED):
                yield int(self.buffer[number]), int(self.offset[number])
            number = int(self.parent[number])
