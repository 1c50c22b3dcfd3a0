"""What a solver is asked and what it answers, as JSON between two processes. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """Buffers by columns (steps, half-open; bytes; `fixed` is −1 where the offset is free), gaps as rows of
    buffer, start, end, low, high, and the limits: wall seconds, cores, bytes of memory.

    `capacity` in bytes is what a deciding solver packs into; minimising ones pay no heed to it. No arena is
    below `lower_bound`, as is seen without a search. `workers` are the threads that the solver runs on each
    of its `threads` cores. `binary` is the path of a program, for solvers that are one.
    """

    start: list[int]
    end: list[int]
    size: list[int]
    alignment: list[int]
    fixed: list[int]
    gaps: list[list[int]]
    capacity: int
    lower_bound: int
    seconds: float
    threads: int = 1
    workers: int = 1
    seed: int = 0
    memory_bytes: int = 0
    binary: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: offsets in bytes (None when there are none) and, when the solver proves one, a lower
    bound in bytes; `denied` says that it claims the capacity cannot be met.

    `cpu` is the CPU time of the call in seconds, all threads, and `wall` its wall time; `loading` what came
    before it (imports, kernels), which is not counted; `peak_bytes` the most memory that its process held.
    `trouble` says why there is no answer; when the process was ended or died, the other figures are 0, and
    not known.
    """

    offsets: list[int] | None = None
    bound: int = 0
    denied: bool = False
    cpu: float = 0.0
    wall: float = 0.0
    loading: float = 0.0
    peak_bytes: int = 0
    trouble: str = ""
