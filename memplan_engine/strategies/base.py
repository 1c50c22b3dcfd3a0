"""What a strategy is: the protocol that ours and those of other packages follow."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Protocol

from memplan_engine.plan import Parameter
from memplan_engine.problem import Problem
from memplan_engine.strategies.limits import Placement, Progress, SolveLimits

__all__ = [
    "Placement",
    "Progress",
    "SolveLimits",
    "Strategy",
    "is_anytime",
    "obstacle",
    "parameters_of",
    "with_capacity",
]


class Strategy(Protocol):
    """One way to place buffers. Implementations are frozen dataclasses whose fields are their parameters.

    Three members are optional. `obstacle(problem)` says why a problem cannot be placed, "" when it can, so
    that a comparison can leave the strategy out without trying. `anytime`, a bool, says that it improves its
    placement until a proof or its limit: it then gets a time limit by default, and a dashboard goes on with
    it in the background. `with_capacity(capacity)` gives a strategy that ends as soon as the arena fits into
    that many bytes, or is proved not to; with None, the one that minimises.
    """

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

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """Give every buffer an offset, honouring alignment, gaps and fixed offsets, or raise PlanError.

        Deterministic for a seed; never changes `problem`. Fixed offsets are known not to collide.
        """
        ...


def obstacle(strategy: Strategy, problem: Problem) -> str:
    """Why `strategy` cannot place `problem`, for people; "" when it can."""
    method = getattr(strategy, "obstacle", None)
    return str(method(problem)) if method else ""


def is_anytime(strategy: Strategy) -> bool:
    """Whether `strategy` goes on until a proof or its limit."""
    return bool(getattr(strategy, "anytime", False))


def with_capacity(strategy: Strategy, capacity: int | None) -> Strategy | None:
    """`strategy` aimed at an arena of `capacity` bytes; None for one that only minimises."""
    method = getattr(strategy, "with_capacity", None)
    return method(capacity) if method else None


def parameters_of(strategy: Strategy) -> tuple[tuple[str, Parameter], ...]:
    """The strategy's parameters, as (name, value) in the order of its fields; what its repr leaves
    out is none."""
    if not is_dataclass(strategy):
        return ()
    own = (parameter.name for parameter in fields(strategy) if parameter.repr)
    return tuple((key, getattr(strategy, key)) for key in own if key not in ("name", "description", "source"))
