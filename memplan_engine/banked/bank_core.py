"""Why there is no room: buffers that alone do not fit into the banks that they may live in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memplan_engine.problem import Problem


class CoreKind(StrEnum):
    """Why the buffers of a core do not fit."""

    LARGEST = "largest buffer"
    ROOM = "live bytes"
    PACKING = "packing"
    SEARCH = "search"


@dataclass(frozen=True, slots=True, eq=False)
class BankCore:
    """The buffers of `problem`, with its banks, cannot be placed, even without all others.

    LARGEST: the one buffer has `nbytes` bytes, and the largest of the `banks` that it may live in has
    `capacity`. ROOM: at `step` they hold `nbytes` bytes, and the `banks`, all that they may live in, have
    `capacity`. PACKING: they may only live in the one bank, and need an arena of `nbytes` bytes there.
    SEARCH: each way to put them into banks was looked at, and `nbytes` is what they hold at their peak.
    """

    problem: Problem
    kind: CoreKind
    banks: tuple[str, ...]
    nbytes: int
    capacity: int
    step: int
