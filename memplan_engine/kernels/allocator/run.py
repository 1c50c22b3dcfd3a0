"""The allocator over the events of a recording: where each allocation lies, and what is reserved
meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.allocator.blocks import (
    ACTIVE,
    ALLOCATED,
    FREE,
    GIVEN,
    IN_USE,
    LOGGED,
    MADE,
    NEXT,
    PENDING,
    REQUESTED,
    RESERVED,
    ROW,
    SIZE,
    STATE,
    Memory,
    cut,
    lacks_room,
    new_block,
    new_memory,
    put,
    release_cached,
    reserve,
    with_room,
)
from memplan_engine.kernels.allocator.free_set import ADDRESS, NOBODY, remove
from memplan_engine.kernels.allocator.requests import (
    SMALL,
    cached_block,
    collect_garbage,
    device_block,
    hand_out,
    release_oversize,
    round_size,
    take_back,
)
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

NOTHING, ALLOC, REQUEST_FREE, COMPLETE_FREE, EMPTY_CACHE, TRY, SEGMENT, CARVE = range(8)
"""What a row does: nothing; allocate; a free is requested, is completed; all that is cached goes back. TRY
asks for memory and lets go of it at once: a request that failed. SEGMENT and CARVE build what was there
before: a segment at a given address, a block of it in use."""
ROOM_ABOVE = 1 << 40
"""How far above the addresses that the device really gave the invented ones begin, bytes."""
MET, RETRIED, FAILED = 0, 1, 2
"""How a request ended: met, met after all cached blocks were given back, not met."""


class Held(NamedTuple):
    """The allocations by number: the block of each (NOBODY: none), the bytes asked for, where it lay and how
    large its block was. `queue` has those whose free waits for a stream, `queued` the place of each in it,
    from 1 on; `queue[0]` is their number."""

    block: Ints
    asked: Ints
    placed: Ints
    queue: Ints
    queued: Ints


class Rows(NamedTuple):
    """What to do, row by row: see `run_allocator`."""

    op: Ints
    ident: Ints
    size: Ints
    base: Ints
    given: Ints
    extent: Ints


@kernel
def run_allocator(
    op: Ints,
    ident: Ints,
    size: Ints,
    base: Ints,
    given: Ints,
    extent: Ints,
    rules: Ints,
    idents: int,
) -> tuple[Ints, Ints, Ints, Ints, int]:
    """Row by row: `op` on allocation `ident` of `size` bytes in the trees from `base` on; `given` is the
    address that the device gave, or NOBODY; `extent` the whole block of a CARVE. It ends after an ALLOC that
    fails.

    Of each allocation its address (NOBODY: none) and its block's size; reserved, active, allocated and
    requested bytes after each row; how each request ended, and the bytes that the device gave for it; the
    log; and how many rows were done.
    """
    memory = new_memory(rules)
    if len(given) > 0 and given.max() >= 0:
        memory.numbers[NEXT] = ((given.max() + ROOM_ABOVE) >> 21) << 21
    held = Held(
        np.full(idents, NOBODY, dtype=np.int64),
        np.zeros(idents, dtype=np.int64),
        np.full((idents, 2), NOBODY, dtype=np.int64),
        np.zeros(idents + 1, dtype=np.int64),
        np.zeros(idents, dtype=np.int64),
    )
    over_time = np.zeros((len(op), 4), dtype=np.int64)
    ended = np.zeros((len(op), 2), dtype=np.int64)
    rows, done, cursor, failed = Rows(op, ident, size, base, given, extent), 0, NOBODY, False
    while done < len(op) and not failed:
        memory = with_room(memory)
        done, cursor, failed = _do_rows(memory, held, rows, over_time, ended, done, cursor)
    return held.placed, over_time, ended, memory.log[: memory.numbers[LOGGED]], done


@kernel(borrows=True)
def _do_rows(
    memory: Memory, held: Held, rows: Rows, over_time: Ints, ended: Ints, begin: int, cursor: int
) -> tuple[int, int, bool]:
    """Row by row from `begin` on, as long as there is room: how many rows are done, what is left of a segment
    to be carved, and whether the last row failed."""
    numbers = memory.numbers
    for row in range(begin, len(rows.op)):
        if lacks_room(memory):
            return row, cursor, False
        cursor, ended[row, 0] = _do_row(memory, held, rows, row, cursor)
        ended[row, 1] = numbers[MADE]
        over_time[row, 0], over_time[row, 1] = numbers[RESERVED], numbers[ACTIVE]
        over_time[row, 2], over_time[row, 3] = numbers[ALLOCATED], numbers[REQUESTED]
        if rows.op[row] == ALLOC and ended[row, 0] == FAILED:
            return row + 1, cursor, True
    return len(rows.op), cursor, False


@kernel(borrows=True)
def _do_row(memory: Memory, held: Held, rows: Rows, row: int, cursor: int) -> tuple[int, int]:
    """Do what a row says. What is left of a segment to be carved, and how a request ended."""
    what, who, size = rows.op[row], rows.ident[row], rows.size[row]
    base, given, extent = rows.base[row], rows.given[row], rows.extent[row]
    memory.numbers[ROW], memory.numbers[GIVEN], memory.numbers[MADE] = row, given, 0
    if what == CARVE:
        return _carve(memory, held, cursor, who, given, size, extent), MET
    if cursor != NOBODY:
        put(memory, cursor, FREE)
    if what == SEGMENT:
        reserve(memory, given, extent, base)
        return new_block(memory, given, extent, base, IN_USE), MET
    if what in (ALLOC, TRY):
        return NOBODY, _request(memory, held, base, who, size, what == TRY)
    if what == EMPTY_CACHE:
        _empty_cache(memory, held)
    elif what != NOTHING and held.block[who] != NOBODY:
        _free(memory, held, who, what == COMPLETE_FREE)
    return NOBODY, MET


@kernel(borrows=True)
def _note(memory: Memory, held: Held, who: int, block: int, size: int) -> None:
    held.block[who], held.asked[who] = block, size
    held.placed[who, 0], held.placed[who, 1] = memory.blocks[block, ADDRESS], memory.blocks[block, SIZE]
    memory.numbers[ALLOCATED] += memory.blocks[block, SIZE]
    memory.numbers[REQUESTED] += size


@kernel(borrows=True)
def _carve(memory: Memory, held: Held, cursor: int, who: int, address: int, size: int, extent: int) -> int:
    """Take `extent` bytes at `address` of the block `cursor`, which is in no list, for an allocation; what is
    before them is free. What is left behind them, in no list, NOBODY if nothing is."""
    gap = address - memory.blocks[cursor, ADDRESS]
    if gap > 0:
        tail = cut(memory, cursor, gap, FREE)
        remove(memory.blocks, memory.free, tail)
        put(memory, cursor, FREE)
        cursor = tail
    rest = NOBODY
    if extent < memory.blocks[cursor, SIZE]:
        rest = cut(memory, cursor, extent, FREE)
        remove(memory.blocks, memory.free, rest)
    for block in (cursor, rest):
        if block != NOBODY:
            memory.blocks[block, STATE] = IN_USE
    memory.numbers[ACTIVE] += extent
    _note(memory, held, who, cursor, size)
    return rest


@kernel(borrows=True)
def _request(memory: Memory, held: Held, base: int, who: int, asked: int, only_tries: bool) -> int:
    """Meet a request, or fail to, as `DeviceCachingAllocator::malloc` does."""
    size = round_size(asked, memory.rules)
    tree = base + (1 if size <= SMALL else 0)
    ended = MET
    block = cached_block(memory, tree, size)
    if block == NOBODY:
        collect_garbage(memory)
        block = device_block(memory, tree, size)
    if block == NOBODY and release_oversize(memory, tree, size):
        block = device_block(memory, tree, size)
    if block == NOBODY:
        _empty_cache(memory, held)
        block = device_block(memory, tree, size)
        ended = RETRIED
    if block == NOBODY:
        return FAILED
    hand_out(memory, block, size)
    if only_tries:
        take_back(memory, block)
    else:
        _note(memory, held, who, block, asked)
    return ended


@kernel(borrows=True)
def _free(memory: Memory, held: Held, who: int, completed: bool) -> None:
    """A free is requested: its bytes are not allocated any more. It is completed: they may be used again."""
    block = held.block[who]
    queue, queued = held.queue, held.queued
    if queued[who] == 0:
        memory.numbers[ALLOCATED] -= memory.blocks[block, SIZE]
        if not completed:
            memory.blocks[block, STATE] = PENDING
            queue[0] += 1
            queue[queue[0]], queued[who] = who, queue[0]
    if completed:
        if queued[who] != 0:
            last = queue[queue[0]]
            queue[queued[who]], queued[last] = last, queued[who]
            queue[0] -= 1
            queued[who] = 0
        memory.numbers[REQUESTED] -= held.asked[who]
        held.block[who] = NOBODY
        take_back(memory, block)


@kernel(borrows=True)
def _empty_cache(memory: Memory, held: Held) -> None:
    """Wait for all streams, then give back what is cached."""
    while held.queue[0] > 0:
        _free(memory, held, held.queue[held.queue[0]], True)
    release_cached(memory)
