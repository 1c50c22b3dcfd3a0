"""What a strategy is: the protocol that ours and those of other packages follow."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Protocol

from memplan_engine.plan import Parameter
from memplan_engine.problem import Problem
from memplan_engine.strategies.budget import Budget, Progress
from memplan_engine.strategies.placement import Placement

__all__ = ["Budget", "Placement", "Progress", "Strategy", "obstacle", "parameters_of"]


class Strategy(Protocol):
    """One way to place buffers. Implementations are frozen dataclasses whose fields are their parameters."""

    @property
    def name(self) -> str:
        """The name that people type, such as "greedy_by_size"."""
        ...

    @property
    def description(self) -> str:
        """One line for people."""
        ...

    @property
    def source(self) -> str:
        """The paper or system it comes from."""
        ...

    def place(self, problem: Problem, budget: Budget) -> Placement:
        """Give every buffer an offset, honouring alignment, gaps and fixed offsets, or raise PlanError.

        Deterministic for a seed; never changes `problem`. Fixed offsets are known not to collide.
        """
        ...


def obstacle(strategy: Strategy, problem: Problem) -> str:
    """Why `strategy` cannot place `problem`, for people; "" when it can.

    A strategy that cannot place everything says so with a method `obstacle(problem)`, so that a comparison
    can leave it out without trying.
    """
    method = getattr(strategy, "obstacle", None)
    return str(method(problem)) if method else ""


def parameters_of(strategy: Strategy) -> tuple[tuple[str, Parameter], ...]:
    """The strategy's parameters, as (name, value) in the order of its fields; what its repr leaves
    out is none."""
    if not is_dataclass(strategy):
        return ()
    own = (parameter.name for parameter in fields(strategy) if parameter.repr)
    return tuple((key, getattr(strategy, key)) for key in own if key not in ("name", "description", "source"))
