"""What OmniMalloc's allocators share: buffers as its objects, and a limit on its threads."""

from __future__ import annotations

from collections.abc import Sequence

import omnimalloc

from benchmarks.solvers.protocol import Request


def allocations(request: Request) -> tuple[omnimalloc.Allocation, ...]:
    """The buffers; sets the number of threads as well."""
    omnimalloc.set_max_threads(request.threads * request.workers)
    rows = zip(request.start, request.end, request.size, request.fixed, strict=True)
    return tuple(
        omnimalloc.Allocation(id=place, size=size, start=start, end=end, offset=None if at < 0 else at)
        for place, (start, end, size, at) in enumerate(rows)
    )


def offsets_of(placed: Sequence[omnimalloc.Allocation]) -> list[int]:
    """Offsets in bytes, in the order of the request."""
    by_place = {allocation.id: allocation.offset for allocation in placed}
    return [by_place[place] for place in range(len(placed))]  # type: ignore[misc]


def peak_of(placed: Sequence[omnimalloc.Allocation]) -> int:
    """The arena, bytes."""
    return max((allocation.offset + allocation.size for allocation in placed), default=0)  # type: ignore[operator]
