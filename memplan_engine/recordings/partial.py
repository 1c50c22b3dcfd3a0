"""Mark recordings of a part of a run: those that lack events before the first one, between two, or all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.callers import UNKNOWN_STACK
from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import (
    BLOCK,
    EVENT,
    MEMORY,
    Action,
    Partial,
    Recording,
    reserved_over_time,
)
from memplan_engine.recordings.recorded_problem import PAGE, Spans, buffers, older_segments

SMALL, SMALL_SEGMENT, LARGE_SEGMENT = 1 << 20, 2 << 20, 20 << 20
"""Requests of at most SMALL bytes share segments of SMALL_SEGMENT; no other segment is smaller than
LARGE_SEGMENT, or than the request it was made for (`c10/cuda/CUDACachingAllocator.cpp`)."""
OTHER_SIZES = "large_segment_size"
"""The setting under which a segment says nothing of the request it was made for."""


def marked(
    recording: Recording, overflowed: bool = False, no_addresses: bool = False, lost: bool = False
) -> Recording:
    """Return `recording` with all reasons why it is partial; `overflowed` and `no_addresses` are what its
    file says, and that events were `lost` what its totals say (`loses_events`). O(n log n) events.

    A snapshot that was begun after the weights were made is whole: the weights are blocks that it names. It
    is partial if something is freed that it did not see, or reserved for something that was gone before.
    """
    if not len(recording.rows(*MEMORY)):
        return replace(recording, partial=(Partial.NO_EVENTS,))
    spans = buffers(recording)
    found = [Partial.OVERFLOWED] if overflowed else []
    if not overflowed and _is_begun_midway(recording, spans):
        found.append(Partial.BEGUN_MIDWAY)
    if lost or spans.lost_frees or spans.double_frees:
        found.append(Partial.EVENTS_LOST)
    if no_addresses:
        found.append(Partial.NO_ADDRESSES)
    return replace(recording, partial=tuple(found))


def _is_begun_midway(recording: Recording, spans: Spans) -> bool:
    older = spans.start == 0
    if (older & (spans.end < recording.steps)).any() or (spans.address[older] < 0).any():
        return True
    if OTHER_SIZES in recording.settings:
        return False
    return _holds_more(recording, spans.select(np.flatnonzero(older)))


def _holds_more(recording: Recording, older: Spans) -> bool:
    """Return whether more was reserved before the first event than the `older` blocks can have asked for."""
    alone, reserved = _alone(older.size), int(reserved_over_time(recording)[0])
    if recording.held is not None:
        # The first total is after the first event.
        first = recording.events[:1]
        asked = int(_alone(first["size"]).sum()) if first["action"][0] == Action.ALLOC else 0
        return reserved > int(alone.sum()) + asked
    fixed = older_segments(recording)
    stretching = reserved - int(fixed["size"].sum())
    home = np.searchsorted(fixed["address"], older.address, side="right") - 1
    inside = home >= 0
    inside[inside] &= older.address[inside] < (fixed["address"] + fixed["size"])[home[inside]]
    made_for = np.zeros(len(fixed), dtype=np.int64)
    np.maximum.at(made_for, home[inside], alone[inside])
    return bool((fixed["size"] > made_for).any()) or stretching > int(alone[~inside].sum())


def _alone(size: Ints) -> Ints:
    """Return the most bytes that the allocator reserves for a request of each `size` alone: as much again for
    settings that round it up, in pages of an expandable segment."""
    large = -(-2 * size.astype(np.int64) // LARGE_SEGMENT) * LARGE_SEGMENT
    return np.where(size <= SMALL, SMALL_SEGMENT, large)


def loses_events(recording: Recording) -> bool:
    """Return whether a file's totals change by other bytes than its events from the first to the last."""
    if recording.allocated is None:
        return False
    events = recording.events
    size = np.where(events["action"] == Action.ALLOC, events["size"], -events["size"])
    return int(size.sum()) != int(recording.allocated[-1]) - int(recording.allocated[0])


def with_unnamed(recording: Recording) -> Recording:
    """Return `recording` with what was in use before its first event and is of no event as one block, of as
    many bytes as its totals say. Its place is unknown: it is put below all others, where it overlaps none."""
    nbytes = _unnamed(recording)
    if nbytes <= 0:
        return recording
    block = np.zeros(1, BLOCK)
    block["address"], block["size"] = -(-(-nbytes // PAGE) + 1) * PAGE, nbytes
    block["pool"] = block["stack"] = -1
    return replace(recording, blocks=np.concatenate([recording.blocks, block]))


def _unnamed(recording: Recording) -> int:
    """Return the bytes that were in use before the first event and are of no event."""
    if recording.allocated is None:
        return 0
    spans = buffers(recording)
    return int(recording.allocated[0]) - int(spans.size[spans.start == 0].sum())


def with_lost(recording: Recording) -> Recording:
    """Return `recording` with events in place of those that its totals say were lost, so that as much is live
    at each step as was allocated. Each comes right before the event at which the totals show it.

    A lost free is of the youngest buffer of as many bytes, else of what else was lost or has no name, else of
    the oldest buffers. O(n) events.
    """
    if recording.allocated is None or not loses_events(recording):
        return recording
    events, totals = recording.events, recording.allocated
    place = int((events["address"] + events["size"]).max(initial=0)) // PAGE * PAGE + PAGE
    change = np.where(events["action"] == Action.ALLOC, events["size"], -events["size"])
    missing = np.diff(totals) - change
    live: dict[int, int] = {}
    before = _unnamed(recording)
    unnamed = [(place, before)] if before > 0 else []
    place += -(-max(before, 0) // PAGE) * PAGE
    rows: list[tuple[int, int, int]] = []

    def put(at: int, nbytes: int) -> None:
        nonlocal place
        rows.append((at, place, nbytes))
        unnamed.append((place, nbytes))
        place += -(-nbytes // PAGE) * PAGE

    def free(at: int, nbytes: int) -> None:
        same = next((address for address in reversed(live) if live[address] == nbytes), None)
        while nbytes > 0 and (same is not None or unnamed or live):
            if same is None and unnamed:
                address, size = unnamed.pop()
            else:
                address = next(iter(live)) if same is None else same
                size, same = live.pop(address), None
            rows.append((at, address, -size))
            nbytes -= size
        if nbytes < 0:
            put(at, -nbytes)

    for at, (action, address, size) in enumerate(
        zip(*(events[key].tolist() for key in ("action", "address", "size")), strict=True)
    ):
        if missing[at] > 0:
            put(at, int(missing[at]))
        elif missing[at] < 0:
            free(at, -int(missing[at]))
        if action == Action.ALLOC:
            live[address] = size
        else:
            live.pop(address, None)
    return _inserted(recording, rows)


def _inserted(recording: Recording, rows: list[tuple[int, int, int]]) -> Recording:
    """Return `recording` with the events `rows`: before which event, address, bytes (below 0 for a free)."""
    at, address, change = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    made = np.zeros(len(rows), EVENT)
    made["address"], made["size"] = address, np.abs(change)
    made["action"] = np.where(change > 0, Action.ALLOC, Action.FREE_COMPLETED)
    made["time"], made["stack"], made["pool"] = recording.events["time"][at], UNKNOWN_STACK, -1
    assert recording.allocated is not None
    # Of the events before the same one each starts where the last has ended.
    first = np.searchsorted(at, at)
    sums = np.concatenate([[0], np.cumsum(change)])
    after = recording.allocated[at] + sums[1:] - sums[first]
    held = recording.held
    return replace(
        recording,
        events=np.insert(recording.events, at, made),
        allocated=np.insert(recording.allocated, at + 1, after),
        held=None if held is None else np.insert(held, at + 1, held[at + 1]),
    )
