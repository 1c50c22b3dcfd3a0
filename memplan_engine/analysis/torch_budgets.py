"""What torch's own partitioner runs again at each of its budgets, beside schedules of the same graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from memplan_engine.accelerators.presets import Accelerator
from memplan_engine.analysis.op_costs import OpWork

BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""Of `torch._functorch.config.activation_memory_budget`."""


class TorchPoint(NamedTuple):
    """A budget with its live bytes, and the seconds that it takes beside running each op once."""

    budget: float
    live_bytes: int
    extra_seconds: float


@dataclass(frozen=True, slots=True)
class TorchBudget:
    """The forward and backward pass as torch's min-cut partitioner cuts them at `budget`: live bytes at the
    worst step, in the best of its own order and Inductor's rules, and the work of its ops that those of the
    default partition do not do, each with how often; below 0 where it does less."""

    budget: float
    live_bytes: int
    work: tuple[tuple[OpWork, int], ...]

    def on(self, gpu: Accelerator) -> TorchPoint:
        """What it takes on `gpu`."""
        extra = sum(times * work.seconds(gpu) for work, times in self.work)
        return TorchPoint(self.budget, self.live_bytes, extra)
