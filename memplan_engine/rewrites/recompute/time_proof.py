"""What proves that no schedule within a capacity takes less time: a price on bytes, and a flow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class TimeArcKind(StrEnum):
    """What an arc of a flow says of the first execution of an op. Nodes are ops that have `run` by then, ops
    that have run and are `done`, since they do not run again, and storages that are `held`."""

    WAITS = "waits"
    """From an op that has run to one that it follows from, which has run, too; any amount."""
    AGAIN = "again"
    """From an op that has run to the same as done: as much as its time; any amount for one that may run once.
    """
    SPOILED = "spoiled"
    """From an op that has run and writes over what another reads or made to that one as done; any amount."""
    FIRST = "first"
    """From an op that is done to the same as one that has run; any amount."""
    HELD = "held"
    """From an op that is done to a storage that it makes: as much as its bytes cost at the price."""
    READ = "read"
    """From a storage to an op that reads it, as done: one that is not reads it from there on; any amount."""


@dataclass(frozen=True, slots=True)
class TimeArc:
    """`parts` of a nanosecond (`PARTS`) flow from `tail` to `head`, names of ops and storages as `kind`
    says."""

    kind: TimeArcKind
    tail: str
    head: str
    parts: int


@dataclass(frozen=True, slots=True)
class TimeProof:
    """At the first execution of `op`, whatever has run and been let go of: extra ns + `price` · bytes come to
    at least what the `arcs` carry from the ops that have run by then to those that have not and the storages
    that are returned, and the bytes that `op` itself needs.

    For a capacity that is a bound on the time of every schedule whose ops run in any order and, but for those
    that draw random numbers, write over something or are there for an effect, as often as they like. Where
    those that draw may run again, what fills a storage with them does, too; it is named by the first of them.
    """

    op: str
    price: Fraction
    arcs: tuple[TimeArc, ...]


PARTS = 1024
"""Parts of a nanosecond that flows are counted in."""
