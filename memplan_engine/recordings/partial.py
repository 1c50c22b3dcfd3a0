"""Mark recordings of a part of a run: those that lack events before the first one, between two, or all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import (
    BLOCK,
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


def marked(recording: Recording, overflowed: bool = False, no_addresses: bool = False) -> Recording:
    """Return `recording` with all reasons why it is partial; `overflowed` and `no_addresses` are what its
    file says. O(n log n) events.

    A snapshot that was begun after the weights were made is whole: the weights are blocks that it names. It
    is partial if something is freed that it did not see, or reserved for something that was gone before.
    """
    if not len(recording.rows(*MEMORY)):
        return replace(recording, partial=(Partial.NO_EVENTS,))
    spans = buffers(recording)
    found = [Partial.OVERFLOWED] if overflowed else []
    if not overflowed and _is_begun_midway(recording, spans):
        found.append(Partial.BEGUN_MIDWAY)
    if spans.lost_frees or spans.double_frees or _drifts(recording):
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


def _drifts(recording: Recording) -> bool:
    """Return whether a file's totals change by other bytes than its events from the first to the last."""
    if recording.allocated is None:
        return False
    events = recording.events
    size = np.where(events["action"] == Action.ALLOC, events["size"], -events["size"])
    return int(size.sum()) != int(recording.allocated[-1]) - int(recording.allocated[0])


def with_unnamed(recording: Recording) -> Recording:
    """Return `recording` with what was in use before its first event and is of no event as one block, of as
    many bytes as its totals say. Its place is unknown: it is put below all others, where it overlaps none."""
    if recording.allocated is None:
        return recording
    spans = buffers(recording)
    nbytes = int(recording.allocated[0]) - int(spans.size[spans.start == 0].sum())
    if nbytes <= 0:
        return recording
    block = np.zeros(1, BLOCK)
    block["address"], block["size"] = -(-(-nbytes // PAGE) + 1) * PAGE, nbytes
    block["pool"] = block["stack"] = -1
    return replace(recording, blocks=np.concatenate([recording.blocks, block]))
