"""What a recording holds: the allocator's events on one device, and its segments and blocks at the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memplan_engine.callers import Stacks
from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES
from memplan_engine.problem import Ints

Rows = NDArray[Any]


class Action(IntEnum):
    """What the allocator did. Sizes of memory events are as requested; of segments, as reserved."""

    OTHER = 0
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8
    SNAPSHOT = 9


EVENT = np.dtype(
    [
        ("address", "<i8"),
        ("size", "<i8"),
        ("stream", "<i8"),
        ("time", "<i8"),
        ("stack", "<i4"),
        ("pool", "<i4"),
        ("action", "<i4"),
    ]
)
"""One event; addresses and sizes in bytes, time in microseconds, `stack` and `pool` are numbers, −1 unknown.
`address` is what the device still had free for an OOM."""
SEGMENT = np.dtype(
    [("address", "<i8"), ("size", "<i8"), ("stream", "<i8"), ("pool", "<i4"), ("expandable", "?")]
)
BLOCK = np.dtype(
    [
        ("address", "<i8"),
        ("size", "<i8"),
        ("stream", "<i8"),
        ("pool", "<i4"),
        ("stack", "<i4"),
        ("pending", "?"),
    ]
)
"""A block in use when the snapshot was taken: the size that was requested; `pending`: it waits to be free."""


def checked_events(events: Rows, source: str) -> Rows:
    """`events` (dtype EVENT), which may be added up.

    Raises
    ------
    InputError: an address or a size below 0, an end beyond 2^63, or sizes that sum beyond 2^62.
    """
    says = ~np.isin(events["action"], (Action.OTHER, Action.SNAPSHOT))
    address, size = events["address"], events["size"]
    wrong = says & ((address < 0) | (size < 0) | (address > MAX_BYTES - size))
    if wrong.any():
        row = int(np.argmax(wrong))
        found = f"address {address[row]}, size {size[row]}"
        raise InputError(source, f"event {row:,}", found, "neither below 0, and an end below 2^63")
    counted = size[says]
    # In two halves, neither of which overflows.
    total = (int((counted >> 32).sum()) << 32) + int((counted & 0xFFFFFFFF).sum())
    if total > MAX_BYTES // 2:
        raise InputError(source, "events", f"sizes that sum to {total}", "a sum below 2^62")
    return events


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One device. Step 0 is before the first event, step k after the k-th: `steps` = events + 1. `held` are
    the reserved bytes at each step where a file says them outright. `labels` say what a buffer of each stack
    is called, where that is not by its caller."""

    name: str
    device: int
    events: Rows
    segments: Rows
    blocks: Rows
    stacks: Stacks
    pools: tuple[tuple[int, int], ...] = ()
    held: Ints | None = None
    labels: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Length of the time axis."""
        return len(self.events) + 1

    def rows(self, *actions: Action) -> Ints:
        """The indices of the events that are one of `actions`, in order."""
        return np.flatnonzero(np.isin(self.events["action"], actions))


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A snapshot file: a recording for each device of which it says anything."""

    name: str
    recordings: tuple[Recording, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """None stands for the device with the most bytes, and for all streams and pools."""

    device: int | None = None
    stream: int | None = None
    pool: tuple[int, int] | None = None


EVERYTHING = Selection()
