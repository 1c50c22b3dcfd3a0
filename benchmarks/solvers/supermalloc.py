"""OmniMalloc's SuperMalloc: greedy orders, then branch and bound at several bounds until the time is up."""

from __future__ import annotations

import time

from omnimalloc.allocators import SupermallocAllocator

from benchmarks.solvers.omnimalloc_pool import allocations, offsets_of
from benchmarks.solvers.protocol import Answer, Request


def solve(request: Request) -> Answer:
    """Its placement and its own verdict on it; making its objects is not counted."""
    buffers = allocations(request)
    allocator = SupermallocAllocator(timeout=request.seconds, num_threads=request.threads)
    before = time.process_time()
    result = allocator.solve(buffers)
    cpu = time.process_time() - before
    bound = result.peak if result.proved_optimal else result.lower_bound
    return Answer(offsets_of(result.allocations), bound, cpu=cpu)
