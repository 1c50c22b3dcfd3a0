"""First use of a kernel compiles it: do it ahead of time. Compiled kernels are cached on disk."""

from __future__ import annotations

from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.diffing.matching import match_buffers
from memplan_engine.kernels.jit import compiled_only
from memplan_engine.planner import (
    compare,
    hard_problem,
    make_plan,
    use_rare_kernels,
    use_tree_kernel,
)
from memplan_engine.plotting.viewport import Rectangles, Window, view_window
from memplan_engine.problem import Gap, make_problem
from memplan_engine.profile import make_profile
from memplan_engine.recordings.allocator_recording import nothing_recorded
from memplan_engine.rewrites.order.order_search import load_order_kernels
from memplan_engine.strategies import BUILT_IN, built_in
from memplan_engine.strategies.base import SolveLimits, is_anytime
from memplan_engine.verify.certificates import replay


def compile_kernels() -> None:
    """Compile (or load from the cache) every kernel by planning a tiny problem in every way."""
    compile_packing()
    compile_others()


def compile_packing() -> None:
    """Compile the kernels that place buffers, prove and draw: about two thirds of the work."""
    with compiled_only():
        gaps: dict[int, tuple[Gap, ...]] = {0: (Gap(1, 2, 0, 4),)}
        problem = make_problem([0, 1, 2], [3, 4, 5], [8, 16, 8], alignment=4, gaps=gaps)
        for plan in compare(problem, limits=SolveLimits()):
            make_profile(problem, plan.offsets)
        for name in BUILT_IN:
            if is_anytime(built_in(name)):
                make_plan(hard_problem(), name, limits=SolveLimits())
        replay(problem, Bound(1, BoundKind.CORE, 0, core=(0, 1), until=2))
        use_rare_kernels()
        use_tree_kernel()
        match_buffers(problem, hard_problem())
        rectangles = Rectangles(problem.start, problem.end, problem.size, problem.size)
        view_window(rectangles, Window(0, 5, 0, 32), (4, 4), most=0)


def compile_others() -> None:
    """Compile the kernels of the allocator and of orders.

    They share none with `compile_packing`, so a second process can compile them at the same time.
    """
    with compiled_only():
        simulate_allocator(nothing_recorded())
        load_order_kernels()
