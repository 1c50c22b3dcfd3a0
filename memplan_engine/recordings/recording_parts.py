"""One device, stream or pool of a snapshot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import Action, Recording, Rows, Selection, Snapshot
from memplan_engine.recordings.recorded_spans import reserved_over_time

DEFAULT_POOL = (0, 0)
MEMORY = (Action.ALLOC, Action.FREE_REQUESTED, Action.FREE_COMPLETED)


def choose_recording(snapshot: Snapshot, selection: Selection) -> Recording:
    """The part of `snapshot` that is asked for; raises InputError, with what there is, when there is none."""
    devices = {recording.device: recording for recording in snapshot.recordings}
    if not devices:
        raise InputError(snapshot.name, "", "no device with segments or events", "a recording of one")
    if selection.device is None:
        recording = max(snapshot.recordings, key=lambda each: (*held(each), -each.device))
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
            " and ".join(_asked(selection)),
            f"what has events: streams {', '.join(map(str, streams(recording)))}; "
            f"pools {', '.join(map(pool_text, pools(recording)))}",
        )
    return part


def held(recording: Recording) -> tuple[int, int]:
    """The most bytes that were reserved at once, and the bytes of all allocations together."""
    allocated = int(recording.events["size"][recording.rows(Action.ALLOC)].sum())
    return int(reserved_over_time(recording).max()), allocated


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


def _asked(selection: Selection) -> list[str]:
    stream = [] if selection.stream is None else [f"stream {selection.stream}"]
    return stream + ([] if selection.pool is None else [f"pool {pool_text(selection.pool)}"])


def part_of(recording: Recording, stream: int | None, pool: tuple[int, int] | None) -> Recording:
    """The recording of one stream or pool, on the same time axis: events of others become OTHER."""
    chosen = _mask(recording, recording.events, stream, pool)
    events = recording.events.copy()
    events["action"][~chosen] = Action.OTHER
    return replace(
        recording,
        events=events,
        segments=recording.segments[_mask(recording, recording.segments, stream, pool)],
        blocks=recording.blocks[_mask(recording, recording.blocks, stream, pool)],
    )


def _mask(recording: Recording, rows: Rows, stream: int | None, pool: tuple[int, int] | None) -> Rows:
    chosen = np.ones(len(rows), dtype=bool)
    if stream is not None:
        chosen &= rows["stream"] == stream
    if pool is not None:
        numbers = [number for number, each in enumerate(recording.pools) if each == pool]
        # What is of no known pool is of the one that everything is of.
        numbers += [-1] if pool == DEFAULT_POOL else []
        chosen &= np.isin(rows["pool"], numbers)
    return chosen


def pools_by_address(events: Rows, segments: Rows) -> Ints:
    """The pool of each event: its own, else of the segment that holds its address at the end, else −1."""
    pool = events["pool"].astype(np.int64)
    unknown = (pool < 0) & ~np.isin(events["action"], (Action.OOM, Action.SNAPSHOT, Action.OTHER))
    if not len(segments) or not unknown.any():
        return pool
    order = np.argsort(segments["address"])
    sorted_segments = segments[order]
    address = events["address"][unknown]
    place = np.searchsorted(sorted_segments["address"], address, side="right") - 1
    at = sorted_segments[np.maximum(place, 0)]
    inside = (place >= 0) & (address < at["address"] + at["size"])
    pool[unknown] = np.where(inside, at["pool"], -1)
    return pool
