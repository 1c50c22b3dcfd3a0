"""What a recording holds: the allocator's events on one device, and its segments and blocks at the end.

A part of it is one device, stream or pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memplan_engine.callers import Stacks
from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES
from memplan_engine.problem import Ints
from memplan_engine.scope import NO_BASIS, Basis, Scope
from memplan_engine.verdict import Reason, doubt_of

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


class Partial(StrEnum):
    """Why a recording is a part of a run: its figures are the least that the run needed."""

    NO_EVENTS = "it has no event of an allocation"
    OVERFLOWED = "its ring of events overflowed, and the oldest are lost"
    BEGUN_MIDWAY = "it begins midway: memory was in use before that it does not account for"
    EVENTS_LOST = "events are missing in it"
    NO_ADDRESSES = "its events have no addresses: frees are matched by size"


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


MOST_DEVICES = 1024


def check_devices(count: int, source: str) -> None:
    """Raise InputError for recordings of more devices than a machine has: each takes time of its own."""
    if count > MOST_DEVICES:
        raise InputError(source, "devices", f"{count:,} of them", f"at most {MOST_DEVICES:,}")


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
    is called, where that is not by its caller. `settings` are the allocator's, where a file says them, as
    `PYTORCH_CUDA_ALLOC_CONF` has them. `allocated` are the bytes of all blocks in use at each step where a
    file says them, those included that it does not name. `partial` says why this is a part of a run, and is
    empty for a whole one. `source` is what it is of, a real run (EAGER) or a predicted one, and `basis` what
    that rests on."""

    name: str
    device: int
    events: Rows
    segments: Rows
    blocks: Rows
    stacks: Stacks
    pools: tuple[tuple[int, int], ...] = ()
    held: Ints | None = None
    labels: tuple[str, ...] = ()
    settings: str = ""
    allocated: Ints | None = None
    partial: tuple[Partial, ...] = ()
    source: Scope = Scope.EAGER
    basis: Basis = NO_BASIS

    @property
    def scope(self) -> Scope:
        """What its figures count."""
        return Scope.PART if self.partial else self.source

    @property
    def doubt(self) -> Reason | None:
        """Return why a run may hold something else than its figures; None for no reason."""
        return doubt_of(self.scope, self.basis)

    @property
    def steps(self) -> int:
        """Length of the time axis."""
        return len(self.events) + 1

    def rows(self, *actions: Action) -> Ints:
        """The indices of the events that are one of `actions`, in order."""
        return np.flatnonzero(np.isin(self.events["action"], actions))


def nothing_recorded(name: str = "nothing") -> Recording:
    """A recording without an event, of device 0."""
    return Recording(name, 0, np.zeros(0, EVENT), np.zeros(0, SEGMENT), np.zeros(0, BLOCK), Stacks())


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


DEFAULT_POOL = (0, 0)
MEMORY = (Action.ALLOC, Action.FREE_REQUESTED, Action.FREE_COMPLETED)


def choose_recording(snapshot: Snapshot, selection: Selection) -> Recording:
    """The part of `snapshot` that is asked for; raises InputError, with what there is, when there is none."""
    devices = {recording.device: recording for recording in snapshot.recordings}
    if not devices:
        raise InputError(snapshot.name, "", "no device with segments or events", "a recording of one")
    if selection.device is None:
        recording = max(snapshot.recordings, key=lambda candidate: (*held(candidate), -candidate.device))
    elif selection.device in devices:
        recording = devices[selection.device]
    else:
        expected = f"one of {', '.join(map(str, sorted(devices)))}"
        raise InputError(snapshot.name, "device", str(selection.device), expected)
    if selection.stream is None and selection.pool is None:
        return recording
    part = part_of(recording, selection.stream, selection.pool)
    if not len(part.blocks) and not len(part.rows(*MEMORY)):
        raise InputError(
            snapshot.name,
            f"device {recording.device}",
            " and ".join(_selection_words(selection)),
            f"what has events: streams {', '.join(map(str, streams(recording)))}; "
            f"pools {', '.join(map(pool_text, pools(recording)))}",
        )
    return part


def held(recording: Recording) -> tuple[int, int]:
    """The most bytes that were reserved at once, and the bytes of all allocations together."""
    allocated = int(recording.events["size"][recording.rows(Action.ALLOC)].sum())
    return int(reserved_over_time(recording).max()), allocated


def reserved_over_time(recording: Recording) -> Ints:
    """Bytes held of the device, a value a step: worked back from the segments at the end."""
    if recording.held is not None:
        return recording.held
    events = recording.events
    grows = np.isin(events["action"], (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP))
    shrinks = np.isin(events["action"], (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP))
    change = np.where(grows, events["size"], 0) - np.where(shrinks, events["size"], 0)
    sums = np.concatenate([[0], np.cumsum(change)])
    final = int(recording.segments["size"].sum())
    return sums + max(final - int(sums[-1]), -int(sums.min()))


def least_needed(recording: Recording) -> int:
    """Return the most bytes that `recording` says were held at once: reserved, or in use where it says only
    that; 0 where it says neither."""
    said = (reserved_over_time(recording), recording.allocated)
    return max(int(column.max(initial=0)) for column in said if column is not None)


def partial_words(partial: tuple[Partial, ...]) -> str:
    """Return why a recording is a part of a run, in one line; "" for a whole one."""
    return "; ".join(partial)


def streams(recording: Recording) -> list[int]:
    """The streams that allocate, in order."""
    rows = recording.rows(*MEMORY)
    return np.union1d(recording.events["stream"][rows], recording.blocks["stream"]).tolist()  # type: ignore[no-any-return]


def pools(recording: Recording) -> list[tuple[int, int]]:
    """The memory pools that allocate, in order; the one that everything is of unless said is (0, 0)."""
    rows = recording.rows(*MEMORY)
    numbers = np.union1d(recording.events["pool"][rows], recording.blocks["pool"]).tolist()
    return sorted({recording.pools[number] if number >= 0 else DEFAULT_POOL for number in numbers})


def pool_text(pool: tuple[int, int]) -> str:
    """ "0:1", as options and addresses have it."""
    return f"{pool[0]}:{pool[1]}"


def _selection_words(selection: Selection) -> list[str]:
    stream = [] if selection.stream is None else [f"stream {selection.stream}"]
    return stream + ([] if selection.pool is None else [f"pool {pool_text(selection.pool)}"])


def part_of(recording: Recording, stream: int | None, pool: tuple[int, int] | None) -> Recording:
    """The recording of one stream or pool, on the same time axis: events of others become OTHER."""
    mask = _mask(recording, recording.events, stream, pool)
    events = recording.events.copy()
    events["action"][~mask] = Action.OTHER
    return replace(
        recording,
        events=events,
        segments=recording.segments[_mask(recording, recording.segments, stream, pool)],
        blocks=recording.blocks[_mask(recording, recording.blocks, stream, pool)],
    )


def _mask(recording: Recording, rows: Rows, stream: int | None, pool: tuple[int, int] | None) -> Rows:
    mask = np.ones(len(rows), dtype=bool)
    if stream is not None:
        mask &= rows["stream"] == stream
    if pool is not None:
        numbers = [number for number, each in enumerate(recording.pools) if each == pool]
        # What is of no known pool is of the one that everything is of.
        numbers += [-1] if pool == DEFAULT_POOL else []
        mask &= np.isin(rows["pool"], numbers)
    return mask


def pools_by_address(events: Rows, segments: Rows) -> Ints:
    """The pool of each event: its own, else of the segment that holds its address at the end, else −1."""
    pool = events["pool"].astype(np.int64)
    unknown = (pool < 0) & ~np.isin(events["action"], (Action.OOM, Action.SNAPSHOT, Action.OTHER))
    if not len(segments) or not unknown.any():
        return pool
    order = np.argsort(segments["address"])
    sorted_segments = segments[order]
    address = events["address"][unknown]
    index = np.searchsorted(sorted_segments["address"], address, side="right") - 1
    at = sorted_segments[np.maximum(index, 0)]
    inside = (index >= 0) & (address < at["address"] + at["size"])
    pool[unknown] = np.where(inside, at["pool"], -1)
    return pool
