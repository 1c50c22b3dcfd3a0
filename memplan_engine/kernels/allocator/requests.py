"""How a request is met: from a cached block, from the device, after giving back what is cached, or not at
all."""

from __future__ import annotations

from memplan_engine.kernels.allocator.blocks import (
    ACTIVE,
    ALLOWED,
    CALLS,
    CAPACITY,
    COLLECT,
    DIVISIONS,
    EXPANDABLE,
    FOLLOWING,
    FREE,
    GIVEN,
    GRANULE,
    IN_USE,
    KEY_BITS,
    LARGE_SEGMENT,
    MADE,
    MAX_SPLIT,
    NEXT,
    NON_SPLIT,
    PREVIOUS,
    RANGE,
    RESERVED,
    SINCE,
    SIZE,
    SMALL_SEGMENT,
    STATE,
    STREAMS,
    TREE,
    TREES,
    UNLIMITED,
    UNMAPPED,
    Memory,
    cached,
    cut,
    first_of,
    give_back,
    is_of,
    merge,
    new_block,
    page_of,
    put,
    reserve,
)
from memplan_engine.kernels.allocator.free_set import (
    ADDRESS,
    NOBODY,
    after,
    before,
    block_at,
    place_of,
    remove,
    remove_at,
)
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

SMALL, LEAST_LARGE = 1 << 20, 10 << 20
"""kSmallSize: the largest request of the small pool; kMinLargeAlloc: the least that has a segment to
itself."""
MIB_BITS, CLASSES = 20, 16


@kernel(borrows=True)
def round_size(size: int, rules: Ints) -> int:
    """The bytes that a request of `size` takes: a multiple of 512, or of a part of the power of two below."""
    if size < GRANULE:
        return GRANULE
    power = 0
    while size >> (power + 1):
        power += 1
    divisions = rules[DIVISIONS + min(max(power - MIB_BITS, 0), CLASSES - 1)]
    if divisions > 1 and size > GRANULE * divisions:
        step = (1 << power) // divisions
        return -(-size // step) * step
    return -(-size // GRANULE) * GRANULE


@kernel(borrows=True)
def segment_size(size: int, rules: Ints) -> int:
    """What is asked of the device for a rounded request that no cached block meets."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < LEAST_LARGE:
        return rules[LARGE_SEGMENT]
    return -(-size // SMALL_SEGMENT) * SMALL_SEGMENT


@kernel(borrows=True)
def cached_block(memory: Memory, tree: int, size: int) -> int:
    """The best fit among the free blocks, taken out of them; NOBODY if there is none."""
    rules = memory.rules
    if tree < 2 * rules[STREAMS] and not tree & 1:
        memory.numbers[CALLS] += 1
    at = first_of(memory, tree, size)
    block = block_at(memory.free, at)
    if not is_of(memory, block, tree):
        return NOBODY
    if rules[EXPANDABLE]:
        # A block that can grow counts as large as it can become.
        ahead = after(memory.free, at)
        other = block_at(memory.free, ahead)
        while is_of(memory, other, tree) and _reach(memory, other) < _reach(memory, block):
            block, at = other, ahead
            ahead = after(memory.free, at)
            other = block_at(memory.free, ahead)
    limit = rules[MAX_SPLIT]
    if size < limit and memory.blocks[block, SIZE] >= limit:
        return NOBODY
    if size >= limit and memory.blocks[block, SIZE] >= size + rules[NON_SPLIT]:
        return NOBODY
    remove_at(memory.free, at)
    return block


@kernel(borrows=True)
def _reach(memory: Memory, block: int) -> int:
    behind = memory.blocks[block, FOLLOWING]
    if behind != NOBODY and memory.blocks[behind, STATE] == UNMAPPED:
        return memory.blocks[block, SIZE] + memory.blocks[behind, SIZE]
    return memory.blocks[block, SIZE]


@kernel(borrows=True)
def device_block(memory: Memory, tree: int, size: int) -> int:
    """A block that the device gives, in no list; NOBODY if it has not enough, or the process may not have
    more."""
    rules, numbers = memory.rules, memory.numbers
    wanted = segment_size(size, rules)
    if numbers[RESERVED] + wanted > rules[ALLOWED]:
        return NOBODY
    if rules[EXPANDABLE]:
        return _expanded_block(memory, tree, size)
    if numbers[RESERVED] + wanted > rules[CAPACITY]:
        return NOBODY
    address = numbers[GIVEN]
    if address == NOBODY:
        address = numbers[NEXT]
        numbers[NEXT] += wanted
    reserve(memory, address, wanted, tree)
    numbers[MADE] += wanted
    return new_block(memory, address, wanted, tree, IN_USE)


@kernel(borrows=True)
def _expanded_block(memory: Memory, tree: int, size: int) -> int:
    """The lowest place of an expandable segment with room for `size`, its pages mapped as far as needed."""
    blocks = memory.blocks
    block = _place_to_expand(memory, tree, size)
    if blocks[block, STATE] == UNMAPPED and not _map(memory, block, min(blocks[block, SIZE], size)):
        return NOBODY
    while blocks[block, SIZE] < size:
        behind = blocks[block, FOLLOWING]
        if not _map(memory, behind, min(blocks[behind, SIZE], size - blocks[block, SIZE])):
            return NOBODY
        block = behind
    remove(blocks, memory.free, block)
    return block


@kernel(borrows=True)
def _place_to_expand(memory: Memory, tree: int, size: int) -> int:
    """The free block before the first unmapped one behind which there is room, or that itself; of a new
    segment if there is none."""
    blocks = memory.blocks
    unmapped = tree + memory.rules[TREES]
    at = place_of(memory.free, unmapped << KEY_BITS, 0)
    while is_of(memory, block_at(memory.free, at), unmapped):
        block = block_at(memory.free, at)
        ahead = blocks[block, PREVIOUS]
        if ahead != NOBODY and blocks[ahead, STATE] == FREE:
            block = ahead
        room, each = 0, block
        while room < size and each != NOBODY and blocks[each, STATE] in (FREE, UNMAPPED):
            room += blocks[each, SIZE]
            each = blocks[each, FOLLOWING]
        if room >= size:
            return block
        at = after(memory.free, at)
    page = page_of(memory, tree)
    length = -(-max(memory.rules[RANGE], size) // page) * page
    address = -(-memory.numbers[NEXT] // page) * page
    memory.numbers[NEXT] = address + length
    block = new_block(memory, address, length, tree, UNMAPPED)
    put(memory, block, UNMAPPED)
    return block


@kernel(borrows=True)
def _map(memory: Memory, block: int, size: int) -> bool:
    """Map the pages of the first `size` bytes of an unmapped block, and merge them with what is free
    beside."""
    tree = memory.blocks[block, TREE]
    page = page_of(memory, tree)
    mapped = -(-size // page) * page
    if memory.numbers[RESERVED] + mapped > memory.rules[CAPACITY]:
        return False
    remove(memory.blocks, memory.free, block)
    reserve(memory, memory.blocks[block, ADDRESS], mapped, tree)
    memory.numbers[MADE] += mapped
    if mapped < memory.blocks[block, SIZE]:
        cut(memory, block, mapped, UNMAPPED)
    merge(memory, block, FREE)
    put(memory, block, FREE)
    return True


@kernel
def collect_garbage(memory: Memory) -> None:
    """Above the threshold whole large segments that have been free for longer than the average go back."""
    rules, numbers = memory.rules, memory.numbers
    if rules[ALLOWED] == UNLIMITED or numbers[RESERVED] <= rules[COLLECT]:
        return
    target, reclaimed, ages, count = numbers[RESERVED] - rules[COLLECT], 0, 0, 0
    for stream in range(rules[STREAMS]):
        for block in cached(memory, 2 * stream):
            if memory.blocks[block, PREVIOUS] == NOBODY and memory.blocks[block, FOLLOWING] == NOBODY:
                ages += numbers[CALLS] - memory.blocks[block, SINCE]
                count += 1
    freed = True
    while reclaimed < target and freed and count > 0:
        threshold, freed = ages / count, False
        for stream in range(rules[STREAMS]):
            for block in cached(memory, 2 * stream):
                age = numbers[CALLS] - memory.blocks[block, SINCE]
                whole = memory.blocks[block, PREVIOUS] == NOBODY and memory.blocks[block, FOLLOWING] == NOBODY
                if whole and age >= threshold:
                    freed = True
                    reclaimed += memory.blocks[block, SIZE]
                    ages -= age
                    count -= 1
                    give_back(memory, block)


@kernel(borrows=True)
def release_oversize(memory: Memory, tree: int, size: int) -> bool:
    """Give back cached blocks that are too large to be split, until `size` bytes are; whether they were."""
    limit = memory.rules[MAX_SPLIT]
    if limit == UNLIMITED or memory.rules[EXPANDABLE]:
        return False
    wanted = max(size, limit)
    at = first_of(memory, tree, wanted)
    block = block_at(memory.free, at)
    if is_of(memory, block, tree):
        give_back(memory, block)
        return True
    released = 0
    while released < wanted:
        at = before(memory.free, first_of(memory, tree, wanted))
        if at[0] < 0:
            break
        block = block_at(memory.free, at)
        if not is_of(memory, block, tree) or memory.blocks[block, SIZE] < limit:
            break
        released += memory.blocks[block, SIZE]
        give_back(memory, block)
    return released >= wanted


@kernel(borrows=True)
def splits(memory: Memory, block: int, size: int) -> bool:
    """Whether the rest of a block is worth being one of its own."""
    rest = memory.blocks[block, SIZE] - size
    if memory.blocks[block, TREE] & 1 or memory.rules[EXPANDABLE]:
        return rest >= GRANULE
    return size < memory.rules[MAX_SPLIT] and rest > SMALL


@kernel(borrows=True)
def hand_out(memory: Memory, block: int, size: int) -> None:
    """A block that is in no list is in use from now on, with `size` bytes of it or all."""
    if splits(memory, block, size):
        cut(memory, block, size, FREE)
    memory.blocks[block, STATE] = IN_USE
    memory.numbers[ACTIVE] += memory.blocks[block, SIZE]


@kernel(borrows=True)
def take_back(memory: Memory, block: int) -> None:
    """What nobody uses any more is free, one with its free neighbours."""
    memory.numbers[ACTIVE] -= memory.blocks[block, SIZE]
    merge(memory, block, FREE)
    put(memory, block, FREE)
