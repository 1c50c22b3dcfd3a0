"""OmniMalloc's greedy portfolio, which does not search and has no time limit."""

from __future__ import annotations

import time

from omnimalloc.allocators import OmniAllocator

from benchmarks.solvers.omnimalloc_pool import allocations, offsets_of
from benchmarks.solvers.protocol import Answer, Request


def solve(request: Request) -> Answer:
    """Its placement; it proves nothing."""
    buffers = allocations(request)
    before = time.process_time()
    placed = OmniAllocator().allocate(buffers)
    cpu = time.process_time() - before
    return Answer(offsets_of(tuple(placed)), cpu=cpu)
