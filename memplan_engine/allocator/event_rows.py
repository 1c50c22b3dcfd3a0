"""The events of a recording as the rows of the allocator's kernel: who allocates, on which stream, from which
pool, and what was there before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.kernels.allocator.requests import SMALL, round_size
from memplan_engine.kernels.allocator.run import (
    ALLOC,
    CARVE,
    COMPLETE_FREE,
    EMPTY_CACHE,
    NOTHING,
    REQUEST_FREE,
    SEGMENT,
    TRY,
)
from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import DEFAULT_POOL, Action, Recording, Rows
from memplan_engine.recordings.recorded_problem import older_segments

MOST_BYTES = 1 << 52
"""Of one request: what the kernel's keys hold."""
SMALL_SEGMENT = 2 << 20


@dataclass(frozen=True, slots=True, eq=False)
class EventRows:
    """Rows for the kernel, as it names them. `event` is the event that each row stands for, −1 for what was
    there before the first one; `stack` whose each allocation is, −1 unknown; `made` what the device really
    gave for a row. The first `older` allocations were there before."""

    op: Ints
    ident: Ints
    size: Ints
    base: Ints
    given: Ints
    extent: Ints
    event: Ints
    made: Ints
    stack: Ints
    streams: tuple[int, ...]
    pools: tuple[tuple[int, int], ...]
    older: int

    @property
    def idents(self) -> int:
        """How many allocations there are."""
        return len(self.stack)


def event_rows(recording: Recording, as_recorded: bool = False) -> EventRows:
    """The rows of `recording`. What was there before it is allocated first, in order of address;
    `as_recorded` it lies where it lay, and new segments lie where the device gave them. A run of segments
    that were given back stands for one `empty_cache()`, or for the same done at a request that failed at
    first.

    Raises
    ------
    InputError: a request of 4 PiB or more.
    """
    events = recording.events
    for rows_of, rows in (("events", events), ("blocks", recording.blocks)):
        if len(rows) and int(rows["size"].max()) >= MOST_BYTES:
            raise InputError(recording.name, rows_of, f"a size of {rows['size'].max():,}", "less than 2^52")
    trees = _Trees(recording)
    op, ident, stack, older, lost = _identified(recording)
    given, made = _given(events, op)
    first = _before(recording, older, trees, as_recorded)
    none = np.full(len(op), -1, dtype=np.int64)
    columns = {
        "op": op,
        "ident": ident,
        "size": events["size"].astype(np.int64),
        "base": trees.of(events),
        "given": given if as_recorded else none,
        "extent": np.zeros(len(op), dtype=np.int64),
        "event": np.arange(len(op)),
        "made": made,
    }
    # Where an address is handed out again, what was there is free, though nobody said so.
    rows, whose = lost
    ended: dict[str, Ints | int] = {"op": COMPLETE_FREE, "ident": whose, "given": -1, "event": rows}
    if rows.size:
        columns = {name: np.insert(column, rows, ended.get(name, 0)) for name, column in columns.items()}
    joined = {name: np.concatenate([first[name], column]) for name, column in columns.items()}
    return EventRows(**joined, stack=stack, streams=trees.streams, pools=trees.pools, older=len(older))


def _identified(recording: Recording) -> tuple[Ints, Ints, Ints, Rows, tuple[Ints, Ints]]:
    """What each event does, and on which allocation; the stack of each allocation; what was there before; the
    events before which an allocation must end, and that allocation."""
    events = recording.events
    op = _ops(events["action"])
    memory = np.flatnonzero((op == ALLOC) | (op == REQUEST_FREE) | (op == COMPLETE_FREE))
    order = memory[np.argsort(events["address"][memory], kind="stable")]
    address, allocates = events["address"][order], op[order] == ALLOC
    place = np.arange(len(order))
    fresh = np.append(True, address[1:] != address[:-1])[: len(order)]
    group = np.maximum.accumulate(np.where(fresh, place, 0)) if len(order) else place
    owner = np.maximum.accumulate(np.where(allocates, place, -1)) if len(order) else place
    unmade = fresh & ~allocates
    blocks = recording.blocks
    at = np.searchsorted(address, blocks["address"])
    blocks = blocks[np.append(address, -1)[at] != blocks["address"]]
    older = _older(events[order[unmade]], blocks)
    ranked = np.argsort(older["address"], kind="stable")
    rank = np.empty(len(older) + 1, dtype=np.int64)
    rank[ranked] = np.arange(len(older))
    whose = rank[np.maximum(np.cumsum(unmade) - 1, 0)]
    number = len(older) + np.cumsum(allocates) - 1
    whose = np.where(owner >= group, number[np.maximum(owner, 0)], whose)
    ident = np.zeros(len(events), dtype=np.int64)
    ident[order] = whose
    again = np.flatnonzero(allocates[1:] & ~fresh[1:] & (op[order][:-1] != COMPLETE_FREE)) + 1
    in_order = np.argsort(order[again])
    lost = order[again][in_order], whose[again - 1][in_order]
    stack = np.concatenate([older["stack"][ranked], events["stack"][order[allocates]]]).astype(np.int64)
    return op, ident, stack, older[ranked], lost


def _ops(action: Rows) -> Ints:
    """What each action is for the kernel; of a run of segments that go back the first stands for all."""
    completes = bool((action == Action.FREE_COMPLETED).any())
    op = np.full(len(action), NOTHING, dtype=np.int64)
    op[action == Action.ALLOC] = ALLOC
    op[action == Action.FREE_REQUESTED] = REQUEST_FREE if completes else COMPLETE_FREE
    op[action == Action.FREE_COMPLETED] = COMPLETE_FREE
    op[action == Action.OOM] = TRY
    back = (action == Action.SEGMENT_FREE) | (action == Action.SEGMENT_UNMAP)
    op[back & ~np.append(False, back[:-1])[: len(back)]] = EMPTY_CACHE
    return op


def _older(freed: Rows, blocks: Rows) -> Rows:
    names = ("address", "size", "stream", "pool", "stack")
    older = np.zeros(len(freed) + len(blocks), dtype=[(name, "<i8") for name in names])
    for name in names:
        older[name] = np.concatenate([freed[name], blocks[name]])
    # Who freed it says nothing of who asked for it.
    older["stack"][: len(freed)] = -1
    return older


class _Trees:
    """The streams and pools of a recording, numbered: the one that everything is of unless said is pool 0."""

    def __init__(self, recording: Recording) -> None:
        parts = (recording.events, recording.blocks, recording.segments)
        self.streams: tuple[int, ...] = tuple(
            np.unique(np.concatenate([part["stream"] for part in parts])).tolist()
        ) or (0,)
        others = sorted(set(recording.pools) - {DEFAULT_POOL})
        self.pools: tuple[tuple[int, int], ...] = (DEFAULT_POOL, *others)
        # The last is for −1, of no known pool.
        self._pool = np.array([self.pools.index(each) for each in recording.pools] + [0], dtype=np.int64)

    def of(self, rows: Rows) -> Ints:
        """The tree of large blocks of each row; that of small ones is the next."""
        stream = np.searchsorted(np.array(self.streams), rows["stream"])
        found: Ints = 2 * (self._pool[rows["pool"]] * len(self.streams) + stream)
        return found


def _given(events: Rows, op: Ints) -> tuple[Ints, Ints]:
    """Of each allocation the address and the bytes of the segment that the device gave for it just before."""
    given, made = np.full(len(op), -1, dtype=np.int64), np.zeros(len(op), dtype=np.int64)
    at = np.flatnonzero(op == ALLOC)
    at = at[at > 0]
    before = events["action"][at - 1]
    maps = at[before == Action.SEGMENT_MAP]
    at = at[before == Action.SEGMENT_ALLOC]
    given[at], made[at] = events["address"][at - 1], events["size"][at - 1]
    made[maps] = events["size"][maps - 1]
    return given, made


def _before(recording: Recording, older: Rows, trees: _Trees, as_recorded: bool) -> dict[str, Ints]:
    """The rows for what was there before the first event."""
    base = trees.of(older)
    rows = [(ALLOC, who, int(older["size"][who]), int(base[who]), -1, 0) for who in range(len(older))]
    if as_recorded:
        placed = _placed(recording, older, trees)
        inside = {row[1] for row in placed if row[0] == CARVE}
        rows = placed + [row for row in rows if row[1] not in inside]
    table = np.array(rows, dtype=np.int64).reshape(-1, 6)
    names = ("op", "ident", "size", "base", "given", "extent")
    columns = {name: table[:, i] for i, name in enumerate(names)}
    none = np.full(len(table), -1, dtype=np.int64)
    return {**columns, "event": none, "made": np.zeros(len(table), dtype=np.int64)}


def _placed(recording: Recording, older: Rows, trees: _Trees) -> list[tuple[int, int, int, int, int, int]]:
    """The segments that were there, and the blocks in each, where they lay. A gap of at most 1 MiB behind a
    block of a large segment is part of it: no free block there is so small."""
    segments = older_segments(recording)
    tree = trees.of(segments)
    rules = np.zeros(26, dtype=np.int64)
    rows, who = [], 0
    for number, (address, nbytes) in enumerate(zip(segments["address"], segments["size"], strict=True)):
        small, end = int(nbytes == SMALL_SEGMENT), int(address + nbytes)
        rows.append((SEGMENT, 0, 0, int(tree[number]) + small, int(address), int(nbytes)))
        while who < len(older) and older["address"][who] < address:
            who += 1
        while who < len(older) and older["address"][who] < end:
            begin, asked = int(older["address"][who]), int(older["size"][who])
            following = int(older["address"][who + 1]) if who + 1 < len(older) else end
            extent = round_size(asked, rules)
            if not small and min(following, end) - begin - extent <= SMALL:
                extent = min(following, end) - begin
            if begin + extent <= min(following, end):
                rows.append((CARVE, who, asked, 0, begin, extent))
            who += 1
    return rows
