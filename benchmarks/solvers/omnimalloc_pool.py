"""What OmniMalloc's allocators share: buffers as its objects, and a limit on its threads."""

from __future__ import annotations

import omnimalloc

from benchmarks.solvers.protocol import Request


def allocations(request: Request) -> tuple[omnimalloc.Allocation, ...]:
    """The buffers; sets the number of threads as well."""
    omnimalloc.set_max_threads(request.threads)
    rows = zip(request.start, request.end, request.size, strict=True)
    return tuple(
        omnimalloc.Allocation(id=place, size=size, start=start, end=end)
        for place, (start, end, size) in enumerate(rows)
    )


def offsets_of(placed: tuple[omnimalloc.Allocation, ...]) -> list[int]:
    """Offsets in bytes, in the order of the request."""
    by_place = {allocation.id: allocation.offset for allocation in placed}
    return [by_place[place] for place in range(len(placed))]
