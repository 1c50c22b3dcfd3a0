"""Events → buffers in time, with those that are older or younger than the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memplan_engine.callers import UNKNOWN_STACK
from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import Action, Recording, Rows

UNKNOWN_POOL = -1


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
    double_frees: int = 0
    lost_frees: int = 0

    def __len__(self) -> int:
        return len(self.start)

    def select(self, rows: Ints) -> Spans:
        """Those of `rows`."""
        return make_spans([column[rows] for column in self.columns], self.double_frees, self.lost_frees)

    @property
    def columns(self) -> list[Ints]:
        """The columns in their order."""
        return [self.start, self.end, self.address, self.size, self.stream, self.pool, self.stack]


def make_spans(columns: Sequence[Ints], double_frees: int = 0, lost_frees: int = 0) -> Spans:
    """Spans of columns in the order of `Spans.columns`."""
    start, end, address, size, stream, pool, stack = columns
    return Spans(start, end, address, size, stream, pool, stack, double_frees, lost_frees)


def buffers(recording: Recording) -> Spans:
    """Every allocation as a span of the size that was requested, in order of start: O(events log events).

    Memory is free again when the free is completed, or where a file has only requests, when it is requested.
    What the events free without having made it was there before; so were the blocks at the end of which no
    event speaks. What they do not free is there after the last event.
    """
    events = recording.events
    completed = (events["action"] == Action.FREE_COMPLETED).any()
    freed = Action.FREE_COMPLETED if completed else Action.FREE_REQUESTED
    found, last = pair(events, Action.ALLOC, freed, recording.steps)
    blocks = recording.blocks
    spoken = np.isin(blocks["address"], last["address"])
    # A block in use of which the last event says that it is free: its allocation was not recorded.
    lost = spoken & ~blocks["pending"]
    if lost.any():
        place = np.searchsorted(last["address"], blocks["address"][lost])
        lost[lost] = last["action"][place] != Action.ALLOC
    older, younger = blocks[~spoken], blocks[lost]
    since = last["step"][np.searchsorted(last["address"], younger["address"])]
    parts = [
        found,
        _of_blocks(older, np.zeros(len(older), dtype=np.int64), recording.steps),
        _of_blocks(younger, since, recording.steps),
    ]
    return sort(join(parts))


def pair(events: Rows, made: Action, freed: Action, steps: int) -> tuple[Spans, Rows]:
    """The spans between the events `made` and `freed` at the same address, and the last event of each address
    (address, action and the step after it), by address."""
    rows = np.flatnonzero((events["action"] == made) | (events["action"] == freed))
    order = rows[np.lexsort((rows, events["address"][rows]))]
    address, is_made = events["address"][order], events["action"][order] == made
    same = address[1:] == address[:-1]
    has_next, has_previous = np.append(same, False)[: len(order)], np.append(False, same)[: len(order)]
    follows = np.append(order[1:], 0)[: len(order)]
    begins, ends_old = is_made, ~is_made & ~has_previous
    again = np.append(is_made[1:], False)[: len(order)] & has_next & is_made
    twice = ~is_made & has_previous & ~np.append(False, is_made[:-1])[: len(order)]
    chosen = np.concatenate([order[begins], order[ends_old]])
    columns = events[chosen]
    start = np.concatenate([order[begins] + 1, np.zeros(int(ends_old.sum()), dtype=np.int64)])
    end = np.concatenate([np.where(has_next, follows + 1, steps)[begins], order[ends_old] + 1])
    # Who freed it says nothing of who asked for it.
    stack = np.where(columns["action"] == made, columns["stack"], UNKNOWN_STACK)
    numbers = [wide(columns[name]) for name in ("address", "size", "stream", "pool")]
    spans = make_spans([start, end, *numbers, wide(stack)], int(twice.sum()), int(again.sum()))
    last = np.zeros(int((~has_next).sum()), dtype=[("address", "<i8"), ("action", "<i4"), ("step", "<i8")])
    last["address"], last["step"] = address[~has_next], order[~has_next] + 1
    last["action"] = events["action"][order[~has_next]]
    return spans, last


def join(parts: list[Spans]) -> Spans:
    """All of them, one after the other."""
    columns = [np.concatenate(column) for column in zip(*(part.columns for part in parts), strict=True)]
    double, lost = (sum(getattr(part, name) for part in parts) for name in ("double_frees", "lost_frees"))
    return make_spans(columns, double, lost)


def sort(spans: Spans) -> Spans:
    """By start, then by address."""
    return spans.select(np.lexsort((spans.address, spans.start)))


def wide(column: Rows) -> Ints:
    """`column` as int64."""
    return column.astype(np.int64)


def _of_blocks(blocks: Rows, start: Ints, steps: int) -> Spans:
    names = ("address", "size", "stream", "pool", "stack")
    ends = np.full(len(blocks), steps, dtype=np.int64)
    return make_spans([start, ends, *(wide(blocks[name]) for name in names)])
