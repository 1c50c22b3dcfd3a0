"""MiniMalloc deciding a capacity."""

from __future__ import annotations

from benchmarks.solvers.minimalloc_program import run
from benchmarks.solvers.protocol import Answer, Request


def solve(request: Request) -> Answer:
    """Offsets within the capacity, or its claim that there are none."""
    said = run(request, request.capacity, request.seconds)
    return Answer(
        said.offsets,
        denied=said.verdict == "NOT_FOUND",
        cpu=said.cpu,
        wall=said.wall,
        peak_bytes=said.peak_bytes,
        trouble=said.trouble,
    )
