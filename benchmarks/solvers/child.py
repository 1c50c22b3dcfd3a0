"""One solve in this process: `python -m benchmarks.solvers.child MODULE REQUEST ANSWER` (two JSON files)."""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

from benchmarks.solvers.protocol import Request


def peak_bytes() -> int:
    """The most memory that this process has held. Not `ru_maxrss` where it can be helped: on Linux that
    begins with what the parent held."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = [line.split() for line in status.read_text().splitlines()]
        return next(1024 * int(words[1]) for words in lines if words[0] == "VmHWM:")
    kibibytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kibibytes


def pin(threads: int) -> None:
    """Keep this process, and all that it starts, on as many cores as it may have threads: the last ones of
    those that it may use. However many threads a solver runs, it has no more than that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def main() -> None:
    """Read the request, solve it, write the answer."""
    module, request_path, answer_path = sys.argv[1:]
    request = Request(**json.loads(Path(request_path).read_text()))
    pin(request.threads)
    if request.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (request.memory_bytes, request.memory_bytes))
    answer = import_module(f"benchmarks.solvers.{module}").solve(request)
    if not answer.peak_bytes:
        answer = replace(answer, peak_bytes=peak_bytes())
    Path(answer_path).write_text(json.dumps(asdict(answer)))


if __name__ == "__main__":
    main()
