"""Events → stretches of memory in time → a problem, and the allocator's own placement as a plan.

Buffers may be older or younger than the recording. What was held is also one space, without the addresses
that the allocator never had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from memplan_engine.callers import UNKNOWN_STACK, Callers
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt, make_plan
from memplan_engine.problem import Ints, Problem, make_problem
from memplan_engine.recordings.allocator_recording import Action, Recording, Rows
from memplan_engine.recordings.observation import Level, Observation, observation_recording
from memplan_engine.units import format_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Stretches of address space in use over `[start, end)` steps: int64 columns of n, and what did not fit:
    `double_frees` of what was free already, `lost_frees` of what was handed out again."""

    start: Ints
    end: Ints
    address: Ints
    size: Ints
    stream: Ints
    pool: Ints
    stack: Ints
    double_frees: int = field(default=0, kw_only=True)
    lost_frees: int = field(default=0, kw_only=True)

    def __len__(self) -> int:
        return len(self.start)

    def select(self, rows: Ints) -> Spans:
        """Those of `rows`."""
        columns = (column[rows] for column in self.columns)
        return Spans(*columns, double_frees=self.double_frees, lost_frees=self.lost_frees)

    @property
    def columns(self) -> list[Ints]:
        """The columns in their order."""
        return [self.start, self.end, self.address, self.size, self.stream, self.pool, self.stack]


def buffers(recording: Recording) -> Spans:
    """Every allocation as a span of the size that was requested, by start, then address: O(n log n) events.

    Memory is free again when the free is completed, or where a file has only requests, when it is requested.
    What the events free without having made it was there before; so were the blocks at the end of which no
    event speaks. What they do not free is there after the last event.
    """
    events = recording.events
    completed = (events["action"] == Action.FREE_COMPLETED).any()
    freed = Action.FREE_COMPLETED if completed else Action.FREE_REQUESTED
    recorded, last = pair(events, Action.ALLOC, freed, recording.steps)
    blocks = recording.blocks
    spoken = np.isin(blocks["address"], last["address"])
    # A block in use of which the last event says that it is free: its allocation was not recorded.
    lost = spoken & ~blocks["pending"]
    if lost.any():
        index = np.searchsorted(last["address"], blocks["address"][lost])
        lost[lost] = last["action"][index] != Action.ALLOC
    older, younger = blocks[~spoken], blocks[lost]
    since = last["step"][np.searchsorted(last["address"], younger["address"])]
    parts = [
        recorded,
        _of_blocks(older, np.zeros(len(older), dtype=np.int64), recording.steps),
        _of_blocks(younger, since, recording.steps),
    ]
    spans = join(parts)
    return spans.select(np.lexsort((spans.address, spans.start)))


def pair(events: Rows, alloc: Action, freed: Action, steps: int) -> tuple[Spans, Rows]:
    """The spans between the events `alloc` and `freed` at the same address, and the last event of each
    address (address, action and the step after it), by address."""
    rows = np.flatnonzero((events["action"] == alloc) | (events["action"] == freed))
    order = rows[np.lexsort((rows, events["address"][rows]))]
    address, is_alloc = events["address"][order], events["action"][order] == alloc
    same = address[1:] == address[:-1]
    has_next, has_previous = np.append(same, False)[: len(order)], np.append(False, same)[: len(order)]
    follows = np.append(order[1:], 0)[: len(order)]
    begins, ends_old = is_alloc, ~is_alloc & ~has_previous
    again = np.append(is_alloc[1:], False)[: len(order)] & has_next & is_alloc
    twice = ~is_alloc & has_previous & ~np.append(False, is_alloc[:-1])[: len(order)]
    chosen = np.concatenate([order[begins], order[ends_old]])
    columns = events[chosen]
    start = np.concatenate([order[begins] + 1, np.zeros(int(ends_old.sum()), dtype=np.int64)])
    end = np.concatenate([np.where(has_next, follows + 1, steps)[begins], order[ends_old] + 1])
    # Who freed it says nothing of who asked for it.
    stack = np.where(columns["action"] == alloc, columns["stack"], UNKNOWN_STACK)
    numbers = [wide(columns[name]) for name in ("address", "size", "stream", "pool")]
    spans = Spans(
        *(start, end, *numbers, wide(stack)), double_frees=int(twice.sum()), lost_frees=int(again.sum())
    )
    last = np.zeros(int((~has_next).sum()), dtype=[("address", "<i8"), ("action", "<i4"), ("step", "<i8")])
    last["address"], last["step"] = address[~has_next], order[~has_next] + 1
    last["action"] = events["action"][order[~has_next]]
    return spans, last


def join(parts: list[Spans]) -> Spans:
    """All of them, one after the other."""
    columns = [np.concatenate(column) for column in zip(*(part.columns for part in parts), strict=True)]
    double, lost = (sum(getattr(part, name) for part in parts) for name in ("double_frees", "lost_frees"))
    return Spans(*columns, double_frees=double, lost_frees=lost)


def wide(column: Rows) -> Ints:
    """`column` as int64."""
    return column.astype(np.int64)


def _of_blocks(blocks: Rows, start: Ints, steps: int) -> Spans:
    names = ("address", "size", "stream", "pool", "stack")
    ends = np.full(len(blocks), steps, dtype=np.int64)
    return Spans(start, ends, *(wide(blocks[name]) for name in names))


PAGE = 2 << 20
"""The granularity in which segments are reserved; where a file knows of no segment they are guessed by it."""
NONE = -1
PLACED_BY = ("first_fit_by_start", "greedy_by_size")


def regions(recording: Recording) -> Spans:
    """The stretches of address space that were reserved, each from its first to its last step.

    A segment is one region for as long as it was held. What an expandable segment maps and unmaps is one from
    its lowest to its highest address, for the whole recording.
    """
    events, steps = recording.events, recording.steps
    segments, last = pair(events, Action.SEGMENT_ALLOC, Action.SEGMENT_FREE, steps)
    fixed = recording.segments[~recording.segments["expandable"]]
    unknown = fixed[~np.isin(fixed["address"], last["address"])]
    parts = [segments, _whole(unknown["address"], unknown["size"], steps)]
    maps = events[np.isin(events["action"], (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP))]
    stretching = recording.segments[recording.segments["expandable"]]
    if len(maps) or len(stretching):
        low = np.concatenate([maps["address"], stretching["address"]])
        high = low + np.concatenate([maps["size"], stretching["size"]])
        parts.append(_merged(low, high, steps))
    return join(parts)


def older_segments(recording: Recording) -> Rows:
    """Return the segments that were there before the first event, by address; no expandable ones."""
    spans, last = pair(recording.events, Action.SEGMENT_ALLOC, Action.SEGMENT_FREE, recording.steps)
    kept = recording.segments[~recording.segments["expandable"]]
    kept = kept[~np.isin(kept["address"], last["address"])]
    freed = spans.select(np.flatnonzero(spans.start == 0))
    names = ("address", "size", "stream", "pool")
    made = np.zeros(len(freed) + len(kept), dtype=[(name, "<i8") for name in names])
    for name in names:
        made[name] = np.concatenate([getattr(freed, name), kept[name]])
    return made[np.argsort(made["address"], kind="stable")]


def offsets(recording: Recording, spans: Spans) -> Ints:
    """The place of each span in one space: its region's, plus how far into it the address lies, bytes.

    Regions are placed like buffers: memory that went back to the device may be what it gave the next time,
    so that the whole is about what was reserved at once, and not all addresses there ever were.
    """
    held = regions(recording)
    home = _homes(held, spans)
    lost = home == NONE
    if lost.any():
        page_low = spans.address[lost] // PAGE * PAGE
        page_high = -(-(spans.address[lost] + spans.size[lost]) // PAGE) * PAGE
        guessed = _merged(page_low, np.maximum(page_high, page_low + PAGE), recording.steps)
        order = np.argsort(guessed.address)
        index = np.searchsorted(guessed.address[order], spans.address[lost], side="right") - 1
        home[lost] = len(held) + order[index]
        held = join([held, guessed])
    spaces = make_problem(held.start, held.end, held.size, steps=recording.steps, name=recording.name)
    # In the order in which they came, unless that takes more.
    plan = min((make_plan(spaces, name) for name in PLACED_BY), key=lambda plan: plan.arena_bytes)
    return plan.offsets[home] + spans.address - held.address[home]


def _homes(regions: Spans, spans: Spans) -> Ints:
    """The region of each span: the one that holds its bytes at the step in which it begins, or NONE."""
    home = np.full(len(spans), NONE, dtype=np.int64)
    if not len(regions):
        return home
    edges = np.unique(np.concatenate([regions.start, regions.end]))
    order = np.argsort(spans.start, kind="stable")
    cuts = np.searchsorted(spans.start[order], edges)
    starts = _by_step(regions.start, edges)
    ends = _by_step(regions.end, edges)
    live = np.zeros(0, dtype=np.int64)
    for number, (low, high) in enumerate(zip(cuts, np.append(cuts[1:], len(spans)), strict=True)):
        if len(ends[number]):
            live = live[~np.isin(live, ends[number])]
        if len(starts[number]):
            new = starts[number][np.argsort(regions.address[starts[number]])]
            live = np.insert(live, np.searchsorted(regions.address[live], regions.address[new]), new)
        rows = order[low:high]
        if len(rows) and len(live):
            region = live[np.searchsorted(regions.address[live], spans.address[rows], side="right") - 1]
            inside = (regions.address[region] <= spans.address[rows]) & (
                spans.address[rows] + spans.size[rows] <= regions.address[region] + regions.size[region]
            )
            home[rows[inside]] = region[inside]
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


GRANULE = 512
"""PyTorch's CUDA allocator hands out multiples of it; kernels may count on addresses that are."""
OLDER, UNKNOWN = "before the recording", "buffer"
RECORDED = "recorded"
"""The name of the allocator's own placement among the strategies."""


def recording_problem(recording: Recording, spans: Spans | None = None) -> Problem:
    """Every allocation as a buffer of the size that was requested, live from its event to its free.

    Its scope and basis are the recording's.
    Step k is after the k-th event, step 0 before the first. Names are the line that asked for the memory and
    a number; `provenance` has the line. Offsets are multiples of 512 bytes, or of what all addresses are
    multiples of.

    Raises
    ------
    InputError: sizes that are negative, or that sum past 2^63 − 1.
    """
    spans = buffers(recording) if spans is None else spans
    callers = Callers(spans.stack, recording.stacks)
    return make_problem(
        spans.start,
        spans.end,
        spans.size,
        names=_names(spans, callers, recording.labels),
        alignment=_granule(spans.address),
        steps=recording.steps,
        name=recording.name,
        callers=callers,
        scope=recording.scope,
        basis=recording.basis,
    )


def observed_problem(
    observation: Observation, level: Level | str | None = None, device: int | None = None
) -> Problem:
    """Every allocation that was observed as a buffer, live from its event to its free; step k is after the
    k-th event, step 0 before the first. What the run freed and had not made is there from step 0 on.

    Names are those of the ops: "conv2d_1", and "conv2d_1 temporary" for what was free again before the op
    ended; a second one has a number. Arguments and errors are those of `observation_recording`.
    """
    return recording_problem(observation_recording(observation, level, device))


def recorded_plan(recording: Recording, problem: Problem | None = None) -> Plan:
    """Where the allocator put everything, as a plan of strategy "recorded"; `validate_plan` says whether the
    recording makes sense. `problem` is that of the recording if it is known already."""
    spans = buffers(recording)
    problem = recording_problem(recording, spans) if problem is None else problem
    return adopt(problem, offsets(recording, spans), RECORDED)


def _granule(address: Ints) -> int:
    """The largest power of two up to GRANULE of which every address is a multiple."""
    bits = int(np.bitwise_or.reduce(address)) if len(address) else 0
    return GRANULE if not bits & (GRANULE - 1) else bits & -bits


def _names(spans: Spans, callers: Callers, labels: tuple[str, ...]) -> list[str]:
    """ "train.py:12 forward #3": by the caller, or "conv2d", "conv2d #2" by `labels`, where there are any.

    Counted in order of start; without a stack by the size, so that the same tensor of two runs has the same
    name.
    """
    counts: dict[str, int] = {}
    names = []
    for stack, start, size in zip(
        spans.stack.tolist(), spans.start.tolist(), spans.size.tolist(), strict=True
    ):
        if stack < 0:
            label = _unknown(size, start == 0)
        else:
            label = labels[stack] if labels else callers.stacks.caller(stack).label
        counts[label] = number = counts.get(label, 0) + 1
        names.append(label if labels and number == 1 else f"{label} #{number}")
    return names


@lru_cache(4096)
def _unknown(nbytes: int, older: bool) -> str:
    return f"{OLDER if older else UNKNOWN}, {format_bytes(nbytes)}"
