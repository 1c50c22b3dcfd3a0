"""The segments that a simulated allocator holds at a step, and what lies in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.allocator.simulation import AllocatorRun
from memplan_engine.kernels.allocator.run import ALLOC, COMPLETE_FREE
from memplan_engine.problem import Ints


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A block in use: its place in its segment and its size, bytes, and the stack of who asked for it (−1:
    unknown)."""

    offset: int
    nbytes: int
    stack: int


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A stretch of memory that the device gave, `nbytes` from `address` on, for one stream and pool;
    `is_small` for requests up to 1 MiB. Mapped pages of an expandable segment that follow one another are
    one."""

    address: int
    nbytes: int
    stream: int
    pool: tuple[int, int]
    is_small: bool
    blocks: tuple[HeldBlock, ...]

    @property
    def used(self) -> int:
        """Bytes of the blocks in use."""
        return sum(block.nbytes for block in self.blocks)


def segments_at(run: AllocatorRun, step: int) -> tuple[HeldSegment, ...]:
    """What is reserved after `step`, by address; O(events)."""
    log = run.log[run.log[:, 0] <= step]
    expandable = run.settings.expandable_segments
    held: dict[int, tuple[int, int]] = {}
    for _, address, nbytes, tree in log.tolist():
        if nbytes > 0:
            held[address] = (nbytes, tree)
        elif expandable:
            _unmap(held, address, -nbytes)
        else:
            held.pop(address, None)
    stretches: list[tuple[int, int, int]] = []
    for address in sorted(held):
        nbytes, tree = held[address]
        if expandable and stretches and stretches[-1][0] + stretches[-1][1] == address:
            stretches[-1] = (stretches[-1][0], stretches[-1][1] + nbytes, tree)
        else:
            stretches.append((address, nbytes, tree))
    return _filled(run, stretches, _in_use(run, step))


def _unmap(held: dict[int, tuple[int, int]], begin: int, nbytes: int) -> None:
    """Take `[begin, begin + nbytes)` out of what is mapped."""
    end = begin + nbytes
    touched = [address for address, (size, _) in held.items() if address < end and address + size > begin]
    for address in touched:
        size, tree = held.pop(address)
        if address < begin:
            held[address] = (begin - address, tree)
        if address + size > end:
            held[end] = (address + size - end, tree)


def _in_use(run: AllocatorRun, step: int) -> Ints:
    """The allocations that are in use after `step`, by address."""
    rows = run.rows
    done = rows.event < min(step, run.ended)
    used = np.zeros(rows.idents, dtype=bool)
    used[rows.ident[done & (rows.op == ALLOC)]] = True
    used[rows.ident[done & (rows.op == COMPLETE_FREE)]] = False
    chosen = np.flatnonzero(used & (run.address >= 0))
    by_address: Ints = chosen[np.argsort(run.address[chosen])]
    return by_address


def _filled(run: AllocatorRun, stretches: list[tuple[int, int, int]], used: Ints) -> tuple[HeldSegment, ...]:
    rows, found = run.rows, []
    addresses = run.address[used]
    for address, nbytes, tree in stretches:
        low, high = np.searchsorted(addresses, [address, address + nbytes])
        blocks = tuple(
            HeldBlock(int(run.address[who]) - address, int(run.block[who]), int(rows.stack[who]))
            for who in used[low:high].tolist()
        )
        stream, pool = rows.streams[tree // 2 % len(rows.streams)], tree // 2 // len(rows.streams)
        found.append(HeldSegment(address, nbytes, stream, rows.pools[pool], bool(tree & 1), blocks))
    return tuple(found)
