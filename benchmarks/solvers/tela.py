"""OmniMalloc's `tela`: TelaMalloc's search, which backtracks a number of times and then gives its best."""

from __future__ import annotations

import time

import omnimalloc
from omnimalloc.allocators import TelamallocAllocator

from benchmarks.solvers.omnimalloc_pool import allocations, offsets_of, peak_of
from benchmarks.solvers.protocol import Answer, Request
from benchmarks.solvers.question import timed

FIRST_BACKTRACKS = 10_000
"""Its default. Ten times as many with the next seed follow, until the time is up: on some instances few
give the better arena in 5 s, on others many."""


def solve(request: Request) -> Answer:
    """The best placement of all calls; it proves nothing."""
    buffers = allocations(request)
    placed, spent = timed(lambda: _best(buffers, request))
    return Answer(offsets_of(placed), **spent)


def _best(buffers: tuple[omnimalloc.Allocation, ...], request: Request) -> tuple[omnimalloc.Allocation, ...]:
    end = time.monotonic() + request.seconds
    best: tuple[omnimalloc.Allocation, ...] = ()
    backtracks, seed = FIRST_BACKTRACKS, request.seed
    while not best or (peak_of(best) > request.lower_bound and time.monotonic() < end):
        left = max(0.0, end - time.monotonic())
        placed = TelamallocAllocator(seed, backtracks, left).allocate(buffers)
        best = min(best or placed, placed, key=peak_of)
        backtracks, seed = 10 * backtracks, seed + 1
    return best
