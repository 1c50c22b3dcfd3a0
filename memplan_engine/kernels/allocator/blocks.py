"""Blocks of the caching allocator, and what is done with one: split, merged, given back to the device.

The rules are those of `c10/cuda/CUDACachingAllocator.cpp` of PyTorch (DeviceCachingAllocator), the names here
our own: a *tree* is a pool of one stream, small blocks and large ones apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.allocator.free_set import (
    ADDRESS,
    KEY,
    NOBODY,
    FreeSet,
    after,
    block_at,
    insert,
    new_free_set,
    place_of,
    remove,
    with_more_room,
)
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints, Shorts

GRANULE, SMALL_SEGMENT = 512, 2 << 20
"""kMinBlockSize; kSmallBuffer, also the pages of small expandable segments."""
UNLIMITED = 1 << 62
FREE, IN_USE, PENDING, UNMAPPED = 0, 1, 2, 3
"""PENDING: freed, and waiting for another stream to be done with it."""
KEY_BITS, SIZE_BITS = 44, 9
"""Of a key the lower bits are the size in units of 512 B; the upper ones the tree."""

MAX_SPLIT, NON_SPLIT, LARGE_SEGMENT, EXPANDABLE, CAPACITY, ALLOWED, COLLECT, RANGE, TREES, STREAMS = range(10)
DIVISIONS = 10
"""Places in `rules`. CAPACITY is what the device gives, ALLOWED the process's fraction, COLLECT the bytes
from which garbage is collected; UNLIMITED where there are none. RANGE is the address space of an expandable
segment. From DIVISIONS on there are 16, for sizes from 1 MiB, 2 MiB, 4 MiB … on."""
USED, SPARE, RESERVED, ACTIVE, ALLOCATED, REQUESTED, NEXT, LOGGED, ROW, GIVEN, CALLS, MADE = range(12)
"""Places in `numbers`: records of blocks ever used, the first of those to be used again, bytes. NEXT is the
address that the device gives next, GIVEN that which it really gave, or NOBODY; CALLS counts the look-ups in
the large pool, by which garbage has an age; MADE is what the device gave for this row."""
SIZE, TREE, PREVIOUS, FOLLOWING, STATE, SINCE = range(2, 8)
"""Columns of `blocks` after key and address: the neighbours in the segment; the look-up at which it became
free."""


class Memory(NamedTuple):
    """The allocator's state: a row for each block, the free ones in order, numbers, and the rules. `log` has
    rows of (row, address, bytes, tree): what the device gave, and took back (negative)."""

    blocks: Ints
    free: FreeSet
    numbers: Ints
    log: Ints
    rules: Ints


@kernel
def new_memory(rules: Ints) -> Memory:
    """Nothing reserved yet."""
    numbers = np.zeros(12, dtype=np.int64)
    numbers[SPARE], numbers[NEXT], numbers[GIVEN] = NOBODY, 1 << 40, NOBODY
    blocks, log = np.zeros((256, 8), dtype=np.int64), np.zeros((256, 4), dtype=np.int64)
    return Memory(blocks, new_free_set(256), numbers, log, rules)


@kernel(borrows=True)
def lacks_room(memory: Memory) -> bool:
    """Whether one event could do more than there is room for: every block unmapped, in three parts, and
    logged."""
    used, logged = memory.numbers[USED], memory.numbers[LOGGED]
    return 3 * used + 8 > len(memory.blocks) or logged + 4 * used + 16 > len(memory.log)


@kernel
def with_room(memory: Memory) -> Memory:
    """The same with room for one event."""
    used, logged = memory.numbers[USED], memory.numbers[LOGGED]
    blocks, free, log = memory.blocks, memory.free, memory.log
    if 3 * used + 8 > len(blocks):
        blocks = np.zeros((6 * used + 16, 8), dtype=np.int64)
        blocks[: len(memory.blocks)] = memory.blocks
        free = with_more_room(free, len(blocks))
    if logged + 4 * used + 16 > len(log):
        log = np.zeros((2 * (logged + 4 * used + 16), 4), dtype=np.int64)
        log[:logged] = memory.log[:logged]
    return Memory(blocks, free, memory.numbers, log, memory.rules)


@kernel(borrows=True)
def page_of(memory: Memory, tree: int) -> int:
    """The pages of an expandable segment."""
    return SMALL_SEGMENT if tree & 1 else memory.rules[LARGE_SEGMENT]


@kernel(borrows=True)
def reserve(memory: Memory, address: int, nbytes: int, tree: int) -> None:
    """Count and log what the device gave, or took back (negative)."""
    numbers = memory.numbers
    numbers[RESERVED] += nbytes
    at = numbers[LOGGED]
    memory.log[at, 0], memory.log[at, 1] = numbers[ROW], address
    memory.log[at, 2], memory.log[at, 3] = nbytes, tree
    numbers[LOGGED] += 1


@kernel(borrows=True)
def new_block(memory: Memory, address: int, size: int, tree: int, state: int) -> int:
    """A block without neighbours, in no list."""
    numbers = memory.numbers
    block = numbers[SPARE]
    if block == NOBODY:
        block = numbers[USED]
        numbers[USED] += 1
    else:
        numbers[SPARE] = memory.blocks[block, FOLLOWING]
    row = memory.blocks[block]
    row[ADDRESS], row[SIZE], row[TREE], row[STATE] = address, size, tree, state
    row[PREVIOUS], row[FOLLOWING] = NOBODY, NOBODY
    return block


@kernel(borrows=True)
def drop_block(memory: Memory, block: int) -> None:
    """Its number is free again."""
    memory.blocks[block, FOLLOWING] = memory.numbers[SPARE]
    memory.numbers[SPARE] = block


@kernel(borrows=True)
def put(memory: Memory, block: int, state: int) -> None:
    """Into the list of the free blocks, or of the unmapped ones."""
    memory.blocks[block, STATE] = state
    tree = memory.blocks[block, TREE]
    if state == FREE:
        key = (tree << KEY_BITS) | (memory.blocks[block, SIZE] >> SIZE_BITS)
        memory.blocks[block, SINCE] = memory.numbers[CALLS]
    else:
        key = (tree + memory.rules[TREES]) << KEY_BITS
    memory.blocks[block, KEY] = key
    insert(memory.blocks, memory.free, block)


@kernel(borrows=True)
def first_of(memory: Memory, tree: int, size: int) -> tuple[int, int]:
    """The place of the smallest free block of `tree` with `size` bytes, or of what comes behind all of
    them."""
    return place_of(memory.free, (tree << KEY_BITS) | (size >> SIZE_BITS), 0)


@kernel(borrows=True)
def is_of(memory: Memory, block: int, tree: int) -> bool:
    """Whether a block of the list is one of the free ones of `tree`."""
    return block != NOBODY and memory.blocks[block, KEY] >> KEY_BITS == tree


@kernel(borrows=True)
def cut(memory: Memory, block: int, size: int, state: int) -> int:
    """Keep `size` bytes of a block that is in no list; the rest is a block behind it, in the list of
    `state`."""
    tail = new_block(
        memory,
        memory.blocks[block, ADDRESS] + size,
        memory.blocks[block, SIZE] - size,
        memory.blocks[block, TREE],
        state,
    )
    memory.blocks[block, SIZE] = size
    behind = memory.blocks[block, FOLLOWING]
    memory.blocks[tail, PREVIOUS], memory.blocks[tail, FOLLOWING] = block, behind
    if behind != NOBODY:
        memory.blocks[behind, PREVIOUS] = tail
    memory.blocks[block, FOLLOWING] = tail
    put(memory, tail, state)
    return tail


@kernel(borrows=True)
def merge(memory: Memory, block: int, state: int) -> None:
    """Take the neighbours of a block that is in no list into it, where they are in `state`, FREE or
    UNMAPPED."""
    before = memory.blocks[block, PREVIOUS]
    if before != NOBODY and memory.blocks[before, STATE] == state:
        remove(memory.blocks, memory.free, before)
        memory.blocks[block, ADDRESS] = memory.blocks[before, ADDRESS]
        memory.blocks[block, SIZE] += memory.blocks[before, SIZE]
        memory.blocks[block, PREVIOUS] = memory.blocks[before, PREVIOUS]
        if memory.blocks[before, PREVIOUS] != NOBODY:
            memory.blocks[memory.blocks[before, PREVIOUS], FOLLOWING] = block
        drop_block(memory, before)
    behind = memory.blocks[block, FOLLOWING]
    if behind != NOBODY and memory.blocks[behind, STATE] == state:
        remove(memory.blocks, memory.free, behind)
        memory.blocks[block, SIZE] += memory.blocks[behind, SIZE]
        memory.blocks[block, FOLLOWING] = memory.blocks[behind, FOLLOWING]
        if memory.blocks[behind, FOLLOWING] != NOBODY:
            memory.blocks[memory.blocks[behind, FOLLOWING], PREVIOUS] = block
        drop_block(memory, behind)


@kernel(borrows=True)
def give_back(memory: Memory, block: int) -> None:
    """cudaFree: a free block that is a whole segment goes back to the device."""
    reserve(memory, memory.blocks[block, ADDRESS], -memory.blocks[block, SIZE], memory.blocks[block, TREE])
    remove(memory.blocks, memory.free, block)
    drop_block(memory, block)


@kernel(borrows=True)
def unmap(memory: Memory, block: int) -> None:
    """The whole pages in a free block of an expandable segment go back to the device."""
    page = page_of(memory, memory.blocks[block, TREE])
    address, size = memory.blocks[block, ADDRESS], memory.blocks[block, SIZE]
    begin, end = -(-address // page) * page, (address + size) // page * page
    if begin >= end:
        return
    remove(memory.blocks, memory.free, block)
    if begin > address:
        # What is before the first whole page stays as it is; the pages are a block of their own.
        tail = cut(memory, block, begin - address, FREE)
        put(memory, block, FREE)
        block = tail
        remove(memory.blocks, memory.free, block)
    if begin + memory.blocks[block, SIZE] > end:
        cut(memory, block, end - begin, FREE)
    memory.blocks[block, STATE] = UNMAPPED
    reserve(memory, begin, begin - end, memory.blocks[block, TREE])
    merge(memory, block, UNMAPPED)
    if memory.blocks[block, PREVIOUS] == NOBODY and memory.blocks[block, FOLLOWING] == NOBODY:
        drop_block(memory, block)
    else:
        put(memory, block, UNMAPPED)


@kernel
def cached(memory: Memory, tree: int) -> Shorts:
    """The free blocks of `tree`, in order."""
    count = 0
    at = first_of(memory, tree, 0)
    while is_of(memory, block_at(memory.free, at), tree):
        at = after(memory.free, at)
        count += 1
    blocks = np.empty(count, dtype=np.int32)
    at = first_of(memory, tree, 0)
    for i in range(count):
        blocks[i] = block_at(memory.free, at)
        at = after(memory.free, at)
    return blocks


@kernel
def release_cached(memory: Memory) -> None:
    """All of the default pool that is not in use goes back, large blocks first:
    `torch.cuda.empty_cache()`."""
    for small in range(2):
        for stream in range(memory.rules[STREAMS]):
            for block in cached(memory, 2 * stream + small):
                if memory.rules[EXPANDABLE]:
                    unmap(memory, block)
                elif memory.blocks[block, PREVIOUS] == NOBODY and memory.blocks[block, FOLLOWING] == NOBODY:
                    give_back(memory, block)
