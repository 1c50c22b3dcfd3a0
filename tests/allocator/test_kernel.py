"""The kernel of the caching allocator against the same rules in plain Python, on drawn streams of events."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.kernels.allocator import run as kernel
from memplan_engine.kernels.allocator.blocks import UNLIMITED
from memplan_engine.kernels.allocator.run import run_allocator
from tests.support.caching_allocator import MIB, NEVER, Block, CachingAllocator, Rules

STREAMS, POOLS = 2, 2
SIZES = st.one_of(
    st.sampled_from([1, 512, 513, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB, 21 * MIB, 64 * MIB]),
    st.integers(1, 4000),
    st.integers(1, 3 * MIB),
    st.integers(MIB, 45 * MIB),
)
Row = tuple[str, int, int, int]


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    large = draw(st.sampled_from([20 * MIB, 20 * MIB, 12 * MIB, 32 * MIB]))
    capacity = draw(st.sampled_from([NEVER, NEVER, 64 * MIB, 100 * MIB, 200 * MIB]))
    limited = draw(st.booleans()) and capacity != NEVER
    divisions = [draw(st.sampled_from([0, 1, 2, 4, 8])) for _ in range(16)]
    return Rules(
        max_split=draw(st.sampled_from([NEVER, NEVER, large, large + 10 * MIB])),
        non_split=draw(st.sampled_from([large, large + 15 * MIB])),
        large_segment=large,
        expandable=draw(st.booleans()),
        capacity=capacity,
        allowed=capacity * 3 // 4 if limited else NEVER,
        collect=capacity // 3 if limited else NEVER,
        reach=draw(st.sampled_from([1 << 40, 80 * MIB])),
        divisions=divisions if draw(st.booleans()) else [0] * 16,
    )


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """("alloc", size, stream, pool), ("free" or "complete", which of those there are, …), ("empty", …)."""
    kinds = ["alloc"] * 6 + ["complete"] * 5 + ["free"] * 2 + ["empty"]
    count = draw(st.integers(1, 60))
    made = []
    for _ in range(count):
        what = draw(st.sampled_from(kinds))
        stream = draw(st.integers(0, STREAMS - 1))
        pool = draw(st.sampled_from([0, 0, 0, POOLS - 1]))
        made.append((what, draw(SIZES) if what == "alloc" else draw(st.integers(0, 1 << 16)), stream, pool))
    return made


def by_definition(
    rules: Rules, events: list[Row]
) -> tuple[list[tuple[int, int, int, int]], list[list[int]], list[int]]:
    """(row's op, allocation, size …) as the kernel takes them, what the definition holds after each row, and
    the address of each allocation."""
    allocator = CachingAllocator(rules)
    live: dict[int, Block] = {}
    ops, states = [], []
    addresses: list[int] = []
    for what, number, stream, pool in events:
        live = {who: block for who, block in live.items() if id(block) not in allocator.gone}
        if what == "alloc":
            who = len(addresses)
            base = 2 * (pool * STREAMS + stream)
            ops.append((kernel.ALLOC, who, number, base))
            try:
                block, retried = allocator.malloc(number, stream, pool)
            except MemoryError:
                states.append([allocator.reserved, allocator.active, allocator.allocated, kernel.FAILED])
                addresses.append(-1)
                break
            live[who] = block
            addresses.append(block.address)
            outcome = kernel.RETRIED if retried else kernel.MET
        elif what == "empty":
            ops.append((kernel.EMPTY_CACHE, 0, 0, 0))
            allocator.empty_cache()
            outcome = kernel.MET
        elif not live:
            continue
        else:
            who = sorted(live)[number % len(live)]
            block = live[who]
            outcome = kernel.MET
            if what == "free" and block.state == "used":
                ops.append((kernel.REQUEST_FREE, who, 0, 0))
                allocator.free(block)
            else:
                ops.append((kernel.COMPLETE_FREE, who, 0, 0))
                allocator.complete(live.pop(who))
        states.append([allocator.reserved, allocator.active, allocator.allocated, outcome])
    return ops, states, addresses


def as_array(rules: Rules) -> np.ndarray:
    limits = [UNLIMITED if each == NEVER else each for each in (rules.capacity, rules.allowed, rules.collect)]
    split = UNLIMITED if rules.max_split == NEVER else rules.max_split
    head = [split, rules.non_split, rules.large_segment, int(rules.expandable), *limits, rules.reach]
    return np.array([*head, 2 * STREAMS * POOLS, STREAMS, *rules.divisions], dtype=np.int64)


@given(rules=rules(), events=rows())
def test_the_kernel_follows_the_definition(rules: Rules, events: list[Row]) -> None:
    ops, states, addresses = by_definition(rules, events)
    columns = np.array(ops, dtype=np.int64).reshape(-1, 4).T
    none = np.full(len(ops), -1, dtype=np.int64)
    placed, over_time, ended, log, done = run_allocator(
        columns[0], columns[1], columns[2], columns[3], none, none, as_array(rules), len(addresses) + 1
    )
    assert done == len(ops)
    assert [[*map(int, over_time[i, :3]), int(ended[i, 0])] for i in range(done)] == states
    assert placed[: len(addresses), 0].tolist() == addresses
    # What the device gave and took back is what is reserved, row by row.
    given = np.zeros(len(ops), dtype=np.int64)
    np.add.at(given, log[:, 0], log[:, 2])
    assert np.cumsum(given).tolist() == over_time[:, 0].tolist()
