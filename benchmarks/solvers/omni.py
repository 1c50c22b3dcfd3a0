"""OmniMalloc's greedy portfolio, which does not search and has no time limit."""

from __future__ import annotations

from omnimalloc.allocators import OmniAllocator

from benchmarks.solvers.omnimalloc_pool import allocations, offsets_of
from benchmarks.solvers.protocol import Answer, Request
from benchmarks.solvers.question import timed


def solve(request: Request) -> Answer:
    """Its placement; it proves nothing."""
    buffers = allocations(request)
    placed, spent = timed(lambda: OmniAllocator().allocate(buffers))
    return Answer(offsets_of(placed), **spent)
