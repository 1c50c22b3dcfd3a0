"""What the allocator held of the device: over time, and as one space without the addresses it never had."""

from __future__ import annotations

import numpy as np

from memplan_engine.planner import make_plan
from memplan_engine.problem import Ints, make_problem
from memplan_engine.recordings.allocator_recording import Action, Recording, Rows
from memplan_engine.recordings.recorded_lifetimes import Spans, join, pair, wide

PAGE = 2 << 20
"""The granularity in which segments are reserved; where a file knows of no segment they are guessed by it."""
NONE = -1
PLACED_BY = ("first_fit_by_start", "greedy_by_size")


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


def regions(recording: Recording) -> Spans:
    """The stretches of address space that were reserved, each from its first to its last step.

    A segment is one region for as long as it was held. What an expandable segment maps and unmaps is one from
    its lowest to its highest address, for the whole recording.
    """
    events, steps = recording.events, recording.steps
    found, last = pair(events, Action.SEGMENT_ALLOC, Action.SEGMENT_FREE, steps)
    fixed = recording.segments[~recording.segments["expandable"]]
    unknown = fixed[~np.isin(fixed["address"], last["address"])]
    parts = [found, _whole(unknown["address"], unknown["size"], steps)]
    maps = events[np.isin(events["action"], (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP))]
    stretching = recording.segments[recording.segments["expandable"]]
    if len(maps) or len(stretching):
        low = np.concatenate([maps["address"], stretching["address"]])
        high = low + np.concatenate([maps["size"], stretching["size"]])
        parts.append(_merged(low, high, steps))
    return join(parts)


def offsets(recording: Recording, spans: Spans) -> Ints:
    """The place of each span in one space: its region's, plus how far into it the address lies, bytes.

    Regions are placed like buffers: memory that went back to the device may be what it gave the next time,
    so that the whole is about what was reserved at once, and not all addresses there ever were.
    """
    known = regions(recording)
    home = _homes(known, spans)
    lost = home == NONE
    if lost.any():
        page_low = spans.address[lost] // PAGE * PAGE
        page_high = -(-(spans.address[lost] + spans.size[lost]) // PAGE) * PAGE
        guessed = _merged(page_low, np.maximum(page_high, page_low + PAGE), recording.steps)
        order = np.argsort(guessed.address)
        place = np.searchsorted(guessed.address[order], spans.address[lost], side="right") - 1
        home[lost] = len(known) + order[place]
        known = join([known, guessed])
    spaces = make_problem(known.start, known.end, known.size, steps=recording.steps, name=recording.name)
    # In the order in which they came, unless that takes more.
    plan = min((make_plan(spaces, name) for name in PLACED_BY), key=lambda plan: plan.arena_bytes)
    return plan.offsets[home] + spans.address - known.address[home]


def _homes(known: Spans, spans: Spans) -> Ints:
    """The region of each span: the one that holds its bytes at the step in which it begins, or NONE."""
    home = np.full(len(spans), NONE, dtype=np.int64)
    if not len(known):
        return home
    edges = np.unique(np.concatenate([known.start, known.end]))
    order = np.argsort(spans.start, kind="stable")
    cuts = np.searchsorted(spans.start[order], edges)
    starts = _by_step(known.start, edges)
    ends = _by_step(known.end, edges)
    held = np.zeros(0, dtype=np.int64)
    for number, (low, high) in enumerate(zip(cuts, np.append(cuts[1:], len(spans)), strict=True)):
        if len(ends[number]):
            held = held[~np.isin(held, ends[number])]
        if len(starts[number]):
            new = starts[number][np.argsort(known.address[starts[number]])]
            held = np.insert(held, np.searchsorted(known.address[held], known.address[new]), new)
        rows = order[low:high]
        if len(rows) and len(held):
            place = held[np.searchsorted(known.address[held], spans.address[rows], side="right") - 1]
            inside = (known.address[place] <= spans.address[rows]) & (
                spans.address[rows] + spans.size[rows] <= known.address[place] + known.size[place]
            )
            home[rows[inside]] = place[inside]
    return home


def _by_step(column: Ints, edges: Ints) -> list[Ints]:
    """For each of `edges` the rows that have it."""
    order = np.argsort(column, kind="stable")
    cuts = np.searchsorted(column[order], edges)
    return [order[low:high] for low, high in zip(cuts, np.append(cuts[1:], len(column)), strict=True)]


def _whole(address: Rows, size: Rows, steps: int) -> Spans:
    n = len(address)
    zeros, none = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    ends = np.full(n, steps, dtype=np.int64)
    return Spans(zeros, ends, wide(address), wide(size), zeros, none, none)


def _merged(low: Ints, high: Ints, steps: int) -> Spans:
    """The stretches `[low, high)`, those that touch as one."""
    order = np.argsort(low)
    low, reach = low[order], np.maximum.accumulate(high[order])
    first = np.append(True, low[1:] > reach[:-1])[: len(low)]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(low) - 1)
    return _whole(low[first], reach[last] - low[first], steps)
