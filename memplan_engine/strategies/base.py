"""What a strategy is, what it is given, and what it gives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memplan_engine.plan import Parameter
from memplan_engine.problem import Ints, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Offsets in bytes, one a buffer; `found_by` says which part of a portfolio they come from.

    `objects` is the shared object of each buffer, 0 … k − 1, where the strategy assigns buffers to whole
    objects; None where it only chooses offsets.
    """

    offsets: Ints
    found_by: str = ""
    objects: Ints | None = None

    def arena_bytes(self, problem: Problem) -> int:
        """max(offset + size)."""
        return int((self.offsets + problem.size).max(initial=0))


@dataclass(slots=True)
class Budget:
    """What a strategy may spend, and how it talks to whoever waits for it.

    `seconds` is a limit on wall time from `running()` on, None for no limit. `stop` is the flag that the
    kernels read; `cancel()` raises it from any thread. `report` is called with each better placement.
    """

    seconds: float | None = None
    seed: int = 0
    report: Callable[[Placement], None] = lambda placement: None
    stop: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, dtype=np.bool_))

    def cancel(self) -> None:
        """Ask the strategy to stop and give the best placement it has."""
        self.stop[0] = True

    @property
    def stopped(self) -> bool:
        """Whether the time is up or somebody has cancelled."""
        return bool(self.stop[0])

    @contextmanager
    def running(self) -> Iterator[Callable[[], float]]:
        """Start the clock; gives a function that tells the seconds since then."""
        began = time.perf_counter()
        timer = threading.Timer(self.seconds, self.cancel) if self.seconds is not None else None
        if timer:
            timer.daemon = True
            timer.start()
        try:
            yield lambda: time.perf_counter() - began
        finally:
            if timer:
                timer.cancel()


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
    """The strategy's parameters, as (name, value) in the order of its fields."""
    if not is_dataclass(strategy):
        return ()
    own = (parameter.name for parameter in fields(strategy))
    return tuple((key, getattr(strategy, key)) for key in own if key not in ("name", "description", "source"))
