"""As a script: what numba's own runtime counts of runs of the kernels, one line of JSON for each.

In a process of its own, since the counts are those of the whole process: another thread that still
computes, which an earlier test has left behind, would be in them.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from numba.core.runtime import _nrt_python, rtsys  # type: ignore[attr-defined]

from benchmarks.allocator import drawn_recording
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.kernels.jit import compiled_only
from memplan_engine.planner import hard_problem, make_plan
from memplan_engine.rewrites.offload.offloaded import load_offload_kernels
from memplan_engine.rewrites.order.order_search import load_order_kernels
from memplan_engine.rewrites.recompute.schedules import load_recompute_kernels
from memplan_engine.strategies.base import SolveLimits


def main() -> None:
    recording, problem = drawn_recording(3_000), hard_problem()
    works: dict[str, Callable[[], object]] = {
        "allocator": lambda: simulate_allocator(recording, parse_settings("expandable_segments:True")),
        "full": lambda: simulate_allocator(recording, parse_settings(""), capacity=20 << 30),
        "order": load_order_kernels.__wrapped__,
        "recompute": load_recompute_kernels.__wrapped__,
        "offload": load_offload_kernels.__wrapped__,
        "search": lambda: make_plan(problem, "search", limits=SolveLimits(0.3)),
    }
    with compiled_only():
        for name, work in works.items():
            work()
            _nrt_python.memsys_enable_stats()
            before = rtsys.get_allocation_stats()
            work()
            after = rtsys.get_allocation_stats()
            _nrt_python.memsys_disable_stats()
            made, given_up = after.alloc - before.alloc, after.free - before.free
            print(json.dumps({"work": name, "made": made, "given_up": given_up}))


if __name__ == "__main__":
    main()
