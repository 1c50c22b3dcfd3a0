"""OmniMalloc's SuperMalloc: greedy orders, then branch and bound at several bounds until the time is up.

Each of its three orders at each bound is a thread's work from beginning to end, so that with one thread the
first order has all of the time. Three threads on one core give each order its turn at the best arena so far;
six look at the lower bound as well.
"""

from __future__ import annotations

from omnimalloc.allocators import SupermallocAllocator

from benchmarks.solvers.omnimalloc_pool import allocations, offsets_of
from benchmarks.solvers.protocol import Answer, Request
from benchmarks.solvers.question import timed


def solve(request: Request) -> Answer:
    """Its placement and its own verdict on it; making its objects is not counted."""
    buffers = allocations(request)
    threads = request.threads * request.workers
    allocator = SupermallocAllocator(timeout=request.seconds, num_threads=threads)
    result, spent = timed(lambda: allocator.solve(buffers))
    bound = result.peak if result.proved_optimal else result.lower_bound
    return Answer(offsets_of(result.allocations), bound, **spent)
