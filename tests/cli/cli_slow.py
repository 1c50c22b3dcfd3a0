"""`python tests/cli/cli_slow.py …` is `memplan …` with three strategies more, all of them slow."""

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

MOST_SECONDS = 60
TELLS = "MEMPLAN_TEST_AT_WORK"
"""The environment variable that names the file which is made once a strategy is at work."""


def tell() -> None:
    """Make the file that says that a strategy is at work, where one is asked for."""
    if os.environ.get(TELLS):
        Path(os.environ[TELLS]).touch()


@dataclass(frozen=True, slots=True)
class Patient:
    """Has a plan at once and goes on until it is stopped; visits 1,000 nodes a millisecond."""

    name: ClassVar[str] = "patient"
    description: ClassVar[str] = "never ends by itself"
    source: ClassVar[str] = "tests"

    def place(self, problem, limits: SolveLimits) -> Placement:
        limits.counter[0] = 1
        limits.prove(lower_bound(problem))
        placement = Naive().place(problem, limits)
        limits.report(placement, problem)
        began = time.monotonic()
        tell()
        while not limits.stopped and time.monotonic() < began + MOST_SECONDS:
            time.sleep(0.005)
            limits.counter[0] = 1 + int((time.monotonic() - began) * 1e6)
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
        time.sleep(MOST_SECONDS)
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
