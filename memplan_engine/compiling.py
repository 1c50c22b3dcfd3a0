"""First use of a kernel compiles it: say so, or do it ahead of time. Compiled kernels are cached on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from numba.core import event

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.planner import SEARCHING, compare, hard_problem, make_plan
from memplan_engine.problem import Gap, make_problem
from memplan_engine.profile import make_profile
from memplan_engine.recheck import replay
from memplan_engine.strategies.base import Budget
from memplan_engine.strategies.contact_fit import placements
from memplan_engine.strategies.order_fit import Fit, place_by, prepare
from memplan_engine.strategies.orders import by_size


class _FirstCompilation(event.Listener):
    def __init__(self, tell: Callable[[], None]) -> None:
        self.tell: Callable[[], None] | None = tell

    def on_start(self, event: Any) -> None:
        """Tell once."""
        if self.tell:
            tell, self.tell = self.tell, None
            tell()

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


def on_first_compilation(tell: Callable[[], None]) -> None:
    """Call `tell` once, when a kernel really has to be compiled; never when it comes from the cache."""
    event.register("numba:compile", _FirstCompilation(tell))  # type: ignore[no-untyped-call]


def compile_kernels() -> None:
    """Compile (or load from the cache) every kernel by planning a tiny problem in every way."""
    gaps: dict[int, tuple[Gap, ...]] = {0: (Gap(1, 2, 0, 4),)}
    problem = make_problem([0, 1, 2], [3, 4, 5], [8, 16, 8], alignment=4, gaps=gaps)
    for plan in compare(problem):
        make_profile(problem, plan.offsets)
    for name in SEARCHING:
        make_plan(hard_problem(), name)
    replay(problem, Bound(1, BoundKind.CORE, 0, core=(0, 1), until=2))
    prepared = replace(prepare(problem), cell=1)
    place_by(prepared, by_size(prepared), Fit.BEST, Budget())
    # Problems this small are packed before contact fit has its turn.
    for _ in placements(prepare(hard_problem()), 1, Budget()):
        break
    # Here, not above: who only plans does not wait for it.
    from memplan_engine.diffing.matching import match_buffers

    match_buffers(problem, hard_problem())
