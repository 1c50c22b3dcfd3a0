"""What advice is made of: candidates that somebody proposes, and the suggestions that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memplan_engine.graph import Source
from memplan_engine.plan import Plan
from memplan_engine.preparation import Preparation
from memplan_engine.what_if.edits import Edit


@dataclass(frozen=True, slots=True)
class OpChange:
    """What to write for the `times` ops of one kind, `op`, of a line. `instead` is Python, x standing for the
    tensor that is written over; `expressions` are the parts of the line that they are, none where the line
    does not tell."""

    op: str
    times: int
    instead: str
    expressions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CodeChange:
    """A line of the user's code and what to write there for the same effect.

    `source` is where it stands, None where the graph does not tell; `module` the modules that run it, with *
    for the numbers of layers; `ops` what becomes of its ops, kind by kind. `edited` is the whole line as it
    reads then, "" where the line alone does not tell.
    """

    source: Source | None
    module: str
    ops: tuple[OpChange, ...]
    edited: str = ""

    @property
    def times(self) -> int:
        """How many ops of the graph change."""
        return sum(each.times for each in self.ops)

    @property
    def diff(self) -> tuple[str, ...]:
        """The line and what it becomes, as in a diff; () where the line alone does not tell."""
        if self.source is None or not self.edited:
            return ()
        return f"- {self.source.code.strip()}", f"+ {self.edited}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that may save bytes; nobody has planned it yet.

    `kinds` are words for what it consists of, `title` says what to do in a few words ("Write 98 results in
    place"), `note` what else there is to say. `parts` are what it is called in a combination with others ("in
    place"), the title unless given.
    `options` are the fields of `Preparation` that change, with their new values; `edits` what changes of
    the buffers after that. Where results are not the same bits, `same_bits` is false.
    """

    kinds: tuple[str, ...]
    title: str
    options: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    same_bits: bool = True
    note: str = ""
    code: tuple[CodeChange, ...] = ()
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Suggestion:
    """A change that saves bytes: `plan` was made with it, and checked.

    `kinds` names what it consists of, several for a combination. `options` and `edits` are what changes
    against the plan that advice was asked for, `how` and `all_edits` all that `plan` was made with. Bytes:
    `saved_bytes` of the arena, `saved_peak_bytes` of the peak, temporaries included. `fits` says whether the
    arena is within the capacity that was asked for; None where none was, or where it is and a run may hold
    more than is planned (`claims.doubt`).
    """

    kinds: tuple[str, ...]
    title: str
    plan: Plan
    saved_bytes: int
    saved_peak_bytes: int
    fits: bool | None
    options: Mapping[str, Any]
    edits: tuple[Edit, ...]
    how: Preparation
    all_edits: tuple[Edit, ...]
    same_bits: bool
    note: str
    code: tuple[CodeChange, ...]
    parts: tuple[str, ...]

    @property
    def numerics(self) -> str:
        """What becomes of the results, in two words."""
        return "bit-identical" if self.same_bits else "changes numerics"

    @property
    def arena_bytes(self) -> int:
        """What the arena takes with it."""
        return self.plan.arena_bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """What was tried, or could not be, and why it is no suggestion."""

    kinds: tuple[str, ...]
    title: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """What can be done about the peak of `plan`: `suggestions`, those that keep every bit first, then those
    that save most, and what was `rejected`. `capacity` is in bytes, None where none was asked for;
    `complete` is false where the time was up before everything had been tried. `why_none` says why there are
    no suggestions, "" where there are."""

    plan: Plan
    capacity: int | None
    suggestions: tuple[Suggestion, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    complete: bool = True
    why_none: str = ""
