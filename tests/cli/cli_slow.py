"""`python -m tests.cli.cli_slow …` is `memplan …` with three more strategies, all of them slow."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from memplan_engine import strategies
from memplan_engine.bounds import lower_bound
from memplan_engine.errors import PlanError
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.linear_scan import Naive
from tests.support.waiting import HANG_SECONDS, wait_until

TELLS = "MEMPLAN_TEST_AT_WORK"
"""The environment variable with the name of the file that `tell` makes."""


def tell() -> None:
    """Make the file that says that a strategy is at work, if TELLS names one."""
    if os.environ.get(TELLS):
        Path(os.environ[TELLS]).touch()


@dataclass(frozen=True, slots=True)
class Patient:
    """Has a plan at once and goes on until it is stopped."""

    name: ClassVar[str] = "patient"
    description: ClassVar[str] = "never ends by itself"
    source: ClassVar[str] = "tests"

    def place(self, problem, limits: SolveLimits) -> Placement:
        limits.counter[0] = 1
        limits.prove(lower_bound(problem))
        placement = Naive().place(problem, limits)
        limits.report(placement, problem)
        tell()

        def visit() -> bool:
            limits.counter[0] += 1000
            return limits.stopped

        wait_until(visit)
        return placement


class Empty(Patient):
    """Has no plan before it is through."""

    name: ClassVar[str] = "empty"

    def place(self, problem, limits: SolveLimits) -> Placement:
        super().place(problem, limits)
        raise PlanError(f"{problem.name}: {self.name} was stopped before every buffer had its offset")


class Deaf(Patient):
    """Does not listen."""

    name: ClassVar[str] = "deaf"

    def place(self, problem, limits: SolveLimits) -> Placement:
        tell()
        time.sleep(HANG_SECONDS)
        return Naive().place(problem, limits)


SLOW = {each.name: each for each in (Patient(), Empty(), Deaf())}


def with_slow() -> dict:
    """Every strategy by name, these three included."""
    return {name: strategies.built_in(name) for name in strategies.BUILT_IN} | SLOW


if __name__ == "__main__":
    from memplan_engine.cli.main import main

    # As in a terminal, even where the tests themselves run in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    strategies.known_strategies = with_slow  # type: ignore[assignment]
    main()
