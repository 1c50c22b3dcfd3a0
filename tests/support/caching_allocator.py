"""PyTorch's caching allocator in plain Python, from its C++: what the kernel is held against.

A segment is a list of blocks in order of address; whatever is looked for is looked for among all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20
NEVER = 1 << 62


@dataclass
class Rules:
    """The settings in bytes; None where there is no limit."""

    max_split: int = NEVER
    non_split: int = 20 * MIB
    large_segment: int = 20 * MIB
    expandable: bool = False
    capacity: int = NEVER
    allowed: int = NEVER
    collect: int = NEVER
    reach: int = 1 << 40
    divisions: list[int] = field(default_factory=lambda: [0] * 16)


@dataclass(eq=False)
class Block:
    address: int
    size: int
    state: str = "free"  # "free", "used", "pending", "unmapped"
    since: int = 0


@dataclass(eq=False)
class Segment:
    pool: int
    stream: int
    small: bool
    blocks: list[Block]


class CachingAllocator:
    """`malloc` gives a block or raises MemoryError; `free` and `complete` take one back; `empty_cache`."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.next = rules, 1 << 40
        self.segments: list[Segment] = []
        self.reserved = self.active = self.allocated = self.lookups = 0
        self.waiting: list[Block] = []
        self.gone: set[int] = set()

    def round(self, size: int) -> int:
        if size < 512:
            return 512
        divisions = self.rules.divisions[min(max(size.bit_length() - 21, 0), 15)]
        step = 512
        if divisions > 1 and size > 512 * divisions:
            step = 2 ** (size.bit_length() - 1) // divisions
        return (size + step - 1) // step * step

    def malloc(self, asked: int, stream: int = 0, pool: int = 0) -> tuple[Block, bool]:
        """A block, and whether all that was cached had to go first."""
        size = self.round(asked)
        kind = (pool, stream, size <= MIB)
        retried = False
        block = self.find(kind, size)
        if block is None:
            self.collect()
            block = self.grow(kind, size)
        if block is None and self.release_oversize(kind, size):
            block = self.grow(kind, size)
        if block is None:
            self.empty_cache()
            retried = True
            block = self.grow(kind, size)
        if block is None:
            raise MemoryError
        segment = self.home(block)
        rest = block.size - size
        split = rest >= 512 if segment.small or self.rules.expandable else rest > MIB
        if not segment.small and not self.rules.expandable and size >= self.rules.max_split:
            split = False
        if split:
            tail = Block(block.address + size, rest, "free", self.lookups)
            segment.blocks.insert(segment.blocks.index(block) + 1, tail)
            block.size = size
        block.state = "used"
        self.active += block.size
        self.allocated += block.size
        return block, retried

    def free(self, block: Block) -> None:
        """Requested: another stream may still read it."""
        self.allocated -= block.size
        block.state = "pending"
        self.waiting.append(block)

    def complete(self, block: Block) -> None:
        if block.state == "pending":
            self.waiting.remove(block)
        else:
            self.allocated -= block.size
        self.active -= block.size
        block.state, block.since = "free", self.lookups
        self.merge(self.home(block))

    def empty_cache(self) -> None:
        for block in list(self.waiting):
            self.gone.add(id(block))
            self.complete(block)
        for segment in list(self.segments):
            if segment.pool != 0:
                continue
            if self.rules.expandable:
                self.unmap(segment)
            elif self.whole(segment):
                self.drop(segment)

    def home(self, block: Block) -> Segment:
        return next(segment for segment in self.segments if any(each is block for each in segment.blocks))

    def of(self, kind: tuple[int, int, bool]) -> list[Segment]:
        return [each for each in self.segments if (each.pool, each.stream, each.small) == kind]

    def whole(self, segment: Segment) -> bool:
        return len(segment.blocks) == 1 and segment.blocks[0].state == "free"

    def drop(self, segment: Segment) -> None:
        self.reserved -= segment.blocks[0].size
        self.segments.remove(segment)

    def merge(self, segment: Segment) -> None:
        """Neighbours that are both free, or both unmapped, are one; it is as young as the one just freed."""
        kept: list[Block] = []
        for block in segment.blocks:
            if kept and kept[-1].state == block.state and block.state in ("free", "unmapped"):
                kept[-1].size += block.size
                kept[-1].since = max(kept[-1].since, block.since)
            else:
                kept.append(block)
        segment.blocks = kept

    def find(self, kind: tuple[int, int, bool], size: int) -> Block | None:
        if kind[0] == 0 and not kind[2]:
            self.lookups += 1
        fits = sorted(
            (
                (block.size, block.address, block.size + self.room_behind(segment, i), block)
                for segment in self.of(kind)
                for i, block in enumerate(segment.blocks)
                if block.state == "free" and block.size >= size
            ),
            key=lambda each: each[:2],
        )
        if not fits:
            return None
        chosen = 0
        if self.rules.expandable:
            while chosen + 1 < len(fits) and fits[chosen + 1][2] < fits[chosen][2]:
                chosen += 1
        block = fits[chosen][3]
        limit = self.rules.max_split
        if size < limit <= block.size:
            return None
        if size >= limit and block.size >= size + self.rules.non_split:
            return None
        return block

    def room_behind(self, segment: Segment, i: int) -> int:
        behind = segment.blocks[i + 1 : i + 2]
        return behind[0].size if behind and behind[0].state == "unmapped" else 0

    def grow(self, kind: tuple[int, int, bool], size: int) -> Block | None:
        if kind[2]:
            wanted = 2 * MIB
        elif size < 10 * MIB:
            wanted = self.rules.large_segment
        else:
            wanted = (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        if self.reserved + wanted > self.rules.allowed:
            return None
        if self.rules.expandable:
            return self.expand(kind, size)
        if self.reserved + wanted > self.rules.capacity:
            return None
        block = Block(self.next, wanted)
        self.next += wanted
        self.reserved += wanted
        self.segments.append(Segment(*kind, [block]))
        return block

    def expand(self, kind: tuple[int, int, bool], size: int) -> Block | None:
        page = 2 * MIB if kind[2] else self.rules.large_segment
        segment, start = self.room_for(kind, size, page)
        # Page by page from the first unmapped byte on, until one free block is large enough.
        while True:
            block = segment.blocks[start]
            if block.state == "free" and block.size >= size:
                return block
            at = start if block.state == "unmapped" else start + 1
            address, hole = block.address, segment.blocks[at]
            have = 0 if at == start else block.size
            wanted = min(hole.size, size - have)
            nbytes = (wanted + page - 1) // page * page
            if self.reserved + nbytes > self.rules.capacity:
                return None
            self.reserved += nbytes
            mapped = Block(hole.address, nbytes, "free", self.lookups)
            hole.address += nbytes
            hole.size -= nbytes
            segment.blocks[at : at + 1] = [mapped, hole] if hole.size else [mapped]
            self.merge(segment)
            start = next(i for i, each in enumerate(segment.blocks) if each.address == address)

    def room_for(self, kind: tuple[int, int, bool], size: int, page: int) -> tuple[Segment, int]:
        holes = sorted(
            (block.address, n, i)
            for n, segment in enumerate(self.segments)
            if (segment.pool, segment.stream, segment.small) == kind
            for i, block in enumerate(segment.blocks)
            if block.state == "unmapped"
        )
        for _, n, i in holes:
            blocks = self.segments[n].blocks
            begin = i - 1 if i and blocks[i - 1].state == "free" else i
            room = 0
            for block in blocks[begin:]:
                if block.state in ("used", "pending") or room >= size:
                    break
                room += block.size
            if room >= size:
                return self.segments[n], begin
        length = (max(self.rules.reach, size) + page - 1) // page * page
        address = (self.next + page - 1) // page * page
        self.next = address + length
        segment = Segment(*kind, [Block(address, length, "unmapped")])
        self.segments.append(segment)
        return segment, 0

    def unmap(self, segment: Segment) -> None:
        page = 2 * MIB if segment.small else self.rules.large_segment
        blocks: list[Block] = []
        for block in segment.blocks:
            begin = (block.address + page - 1) // page * page
            end = (block.address + block.size) // page * page
            if block.state != "free" or begin >= end:
                blocks.append(block)
                continue
            self.reserved -= end - begin
            for low, high, state in (
                (block.address, begin, "free"),
                (begin, end, "unmapped"),
                (end, block.address + block.size, "free"),
            ):
                if low < high:
                    blocks.append(Block(low, high - low, state, self.lookups))
        given_back = len(blocks) != len(segment.blocks) or any(
            new.state != old.state for new, old in zip(blocks, segment.blocks, strict=True)
        )
        segment.blocks = blocks
        self.merge(segment)
        if given_back and len(segment.blocks) == 1 and segment.blocks[0].state == "unmapped":
            self.segments.remove(segment)

    def collect(self) -> None:
        rules = self.rules
        if rules.allowed == NEVER or self.reserved <= rules.collect:
            return
        target, reclaimed, freed = self.reserved - rules.collect, 0, True
        while reclaimed < target and freed:
            idle = [each for each in self.segments if each.pool == 0 and not each.small and self.whole(each)]
            if not idle:
                return
            ages = {id(each): self.lookups - each.blocks[0].since for each in idle}
            threshold = sum(ages.values()) / len(idle)
            old = [each for each in idle if ages[id(each)] >= threshold]
            freed = bool(old)
            for each in old:
                reclaimed += each.blocks[0].size
                self.drop(each)

    def release_oversize(self, kind: tuple[int, int, bool], size: int) -> bool:
        limit = self.rules.max_split
        if limit == NEVER or self.rules.expandable:
            return False
        wanted = max(size, limit)
        free = sorted(
            (
                (block.size, block.address, segment)
                for segment in self.of(kind)
                for block in segment.blocks
                if block.state == "free"
            ),
            key=lambda each: each[:2],
        )
        enough = [each for each in free if each[0] >= wanted]
        if enough:
            self.drop(enough[0][2])
            return True
        released = 0
        for nbytes, _, segment in reversed(free):
            if released >= wanted or nbytes < limit:
                break
            released += nbytes
            self.drop(segment)
        return released >= wanted
