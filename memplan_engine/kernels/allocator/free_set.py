"""Free blocks in the order in which the allocator looks for one: pool, size, address.

A sorted list in two levels: chunks of at most CHUNK blocks, and a directory of the chunks in order. A look-up
is two binary searches, an insertion moves at most a chunk and the directory, where one flat list would move
all that comes behind.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints, Shorts

CHUNK = 64
"""Blocks in a full chunk: 16, 64 and 256 took the same on a million events, within a tenth."""
NOBODY = -1


LENGTH, PLACE, SPARE_CHUNK, COLUMNS = CHUNK, CHUNK + 1, CHUNK + 2, CHUNK + 3
"""Columns of the lists: row c has the members of chunk c, then how many they are; and at c of the directory
the chunk that comes there, of the chunks to be used again the c-th. The last row has in its first places how
many chunks are in use, were ever begun, and are to be used again."""
KEY, ADDRESS = 0, 1
"""Columns of the blocks that the order is by."""


@kernel
def new_lists(most_blocks: int) -> Shorts:
    """Nothing free, with room for so many blocks: neighbouring chunks are together at least half full."""
    return np.zeros((8 * most_blocks // CHUNK + 10, COLUMNS), dtype=np.int32)


@kernel
def place_of(blocks: Ints, lists: Shorts, key: int, address: int) -> tuple[int, int]:
    """Where the first block stands that is not before (key, address): its place in the directory, which may
    be one past the last, and in that chunk."""
    low, high = 0, lists[-1, 0]
    while low < high:
        middle = (low + high) // 2
        chunk = lists[middle, PLACE]
        last = lists[chunk, lists[chunk, LENGTH] - 1]
        if blocks[last, KEY] < key or (blocks[last, KEY] == key and blocks[last, ADDRESS] < address):
            low = middle + 1
        else:
            high = middle
    if low == lists[-1, 0]:
        return low, 0
    chunk, begin, end = lists[low, PLACE], 0, lists[lists[low, PLACE], LENGTH]
    while begin < end:
        middle = (begin + end) // 2
        block = lists[chunk, middle]
        if blocks[block, KEY] < key or (blocks[block, KEY] == key and blocks[block, ADDRESS] < address):
            begin = middle + 1
        else:
            end = middle
    return low, begin


@kernel
def block_at(blocks: Ints, lists: Shorts, at: tuple[int, int]) -> int:
    """The block at a place, NOBODY past the end."""
    if at[0] >= lists[-1, 0]:
        return NOBODY
    return lists[lists[at[0], PLACE], at[1]]


@kernel
def after(blocks: Ints, lists: Shorts, at: tuple[int, int]) -> tuple[int, int]:
    """The next place."""
    if at[1] + 1 < lists[lists[at[0], PLACE], LENGTH]:
        return at[0], at[1] + 1
    return at[0] + 1, 0


@kernel
def before(blocks: Ints, lists: Shorts, at: tuple[int, int]) -> tuple[int, int]:
    """The place before; (−1, 0) before the first."""
    if at[1] > 0:
        return at[0], at[1] - 1
    if at[0] == 0:
        return -1, 0
    return at[0] - 1, lists[lists[at[0] - 1, PLACE], LENGTH] - 1


@kernel
def insert(blocks: Ints, lists: Shorts, block: int) -> None:
    """Put `block` where its key and address say."""
    where, inside = place_of(blocks, lists, blocks[block, KEY], blocks[block, ADDRESS])
    if lists[-1, 0] == 0:
        _new_chunk(blocks, lists, 0)
    elif where == lists[-1, 0]:
        where -= 1
        inside = lists[lists[where, PLACE], LENGTH]
    chunk = lists[where, PLACE]
    if lists[chunk, LENGTH] == CHUNK:
        _new_chunk(blocks, lists, where + 1)
        other, half = lists[where + 1, PLACE], CHUNK // 2
        for i in range(half):
            lists[other, i] = lists[chunk, half + i]
        lists[chunk, LENGTH], lists[other, LENGTH] = half, CHUNK - half
        if inside > half:
            chunk, inside = other, inside - half
    for i in range(lists[chunk, LENGTH], inside, -1):
        lists[chunk, i] = lists[chunk, i - 1]
    lists[chunk, inside] = block
    lists[chunk, LENGTH] += 1


@kernel
def remove(blocks: Ints, lists: Shorts, block: int) -> None:
    """Take out `block`, which is in it."""
    where, inside = place_of(blocks, lists, blocks[block, KEY], blocks[block, ADDRESS])
    chunk = lists[where, PLACE]
    lists[chunk, LENGTH] -= 1
    for i in range(inside, lists[chunk, LENGTH]):
        lists[chunk, i] = lists[chunk, i + 1]
    # Neighbours that are together less than half full become one: the room for chunks is bounded.
    if lists[chunk, LENGTH] == 0:
        _drop_chunk(blocks, lists, where)
    elif where + 1 < lists[-1, 0] and _are_few(blocks, lists, where):
        _join(blocks, lists, where)
    elif where > 0 and _are_few(blocks, lists, where - 1):
        _join(blocks, lists, where - 1)


@kernel
def _are_few(blocks: Ints, lists: Shorts, where: int) -> bool:
    both = lists[lists[where, PLACE], LENGTH] + lists[lists[where + 1, PLACE], LENGTH]
    return both <= CHUNK // 2


@kernel
def _join(blocks: Ints, lists: Shorts, where: int) -> None:
    chunk, other = lists[where, PLACE], lists[where + 1, PLACE]
    length = lists[chunk, LENGTH]
    for i in range(lists[other, LENGTH]):
        lists[chunk, length + i] = lists[other, i]
    lists[chunk, LENGTH] += lists[other, LENGTH]
    _drop_chunk(blocks, lists, where + 1)


@kernel
def _new_chunk(blocks: Ints, lists: Shorts, where: int) -> None:
    if lists[-1, 2] > 0:
        lists[-1, 2] -= 1
        chunk = lists[lists[-1, 2], SPARE_CHUNK]
    else:
        chunk = lists[-1, 1]
        lists[-1, 1] += 1
    lists[chunk, LENGTH] = 0
    for i in range(lists[-1, 0], where, -1):
        lists[i, PLACE] = lists[i - 1, PLACE]
    lists[where, PLACE] = chunk
    lists[-1, 0] += 1


@kernel
def _drop_chunk(blocks: Ints, lists: Shorts, where: int) -> None:
    lists[lists[-1, 2], SPARE_CHUNK] = lists[where, PLACE]
    lists[lists[where, PLACE], LENGTH] = 0
    lists[-1, 2] += 1
    lists[-1, 0] -= 1
    for i in range(where, lists[-1, 0]):
        lists[i, PLACE] = lists[i + 1, PLACE]
