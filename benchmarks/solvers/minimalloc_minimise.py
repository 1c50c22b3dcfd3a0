"""MiniMalloc minimising: it halves the stretch between 0 and the capacity that it is given.

Which capacities that makes it look at decides how far it comes: one that is hard to refute or to meet takes
all of the time that is left. From twice the lower bound it looks at the bound itself first, and proves what
packs to it; where it does not, it often gives no placement at all. From one byte less than that, the first
capacity is refuted at once and the next ones are roomy. So it has half of the time for each.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.solvers.minimalloc_program import Said, run
from benchmarks.solvers.protocol import Answer, Request

MARGIN_S = 0.02
"""It tells its seconds in thousandths, rounded, and looks at its clock now and then: so close to the limit it
has been cut short."""


def solve(request: Request) -> Answer:
    """The better placement of its two runs, of one where that proves the smallest arena."""
    bound, total = 0, Answer()
    for capacity in (2 * request.lower_bound, 2 * request.lower_bound - 1):
        limit = max(0.001, request.seconds / 2 if not total.wall else request.seconds - total.wall)
        said = run(request, capacity, limit, "--minimize_capacity")
        total = _better(total, said, request)
        if said.trouble:
            return total
        # In time it has refuted every smaller capacity that it was not given offsets for.
        if said.elapsed < limit - MARGIN_S:
            bound = _arena(request, said.offsets) if said.offsets is not None else 0
            break
    return replace(total, bound=bound)


def _better(so_far: Answer, said: Said, request: Request) -> Answer:
    offsets = [each for each in (so_far.offsets, said.offsets) if each is not None]
    return Answer(
        min(offsets, key=lambda each: _arena(request, each), default=None),
        cpu=so_far.cpu + said.cpu,
        wall=so_far.wall + said.wall,
        peak_bytes=max(so_far.peak_bytes, said.peak_bytes),
        trouble=said.trouble,
    )


def _arena(request: Request, offsets: list[int]) -> int:
    return max((offset + size for offset, size in zip(offsets, request.size, strict=True)), default=0)
