"""A search for the commit with which memory came, as a job of the scheduler: what is asked, and what came of
it."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.run_job import WholeJob

from memplan_engine.history.history_values import HistorySeries, Pairs

MOST_SECONDS = 3600.0
STOP_SECONDS = 5.0
"""In which work trees are removed before the process is killed."""


@dataclass(frozen=True, slots=True)
class BisectAsked:
    """Which commit after `good` up to `bad` is to blame, in the repository around `folder`, by what `factory`
    builds there; what is captured is recorded into the store at `location`, into the series of the other
    values. `training` is "step" or "joint", "" for inference."""

    location: str
    folder: str
    factory: str
    good: str
    bad: str
    branch: str
    project: str
    model: str
    variant: str
    strategy: str
    options: Pairs
    training: str = ""

    @property
    def series(self) -> HistorySeries:
        """What is recorded into."""
        # A message has lists for tuples.
        options = tuple((name, value) for name, value in self.options)
        return HistorySeries(self.project, self.model, self.variant, self.strategy, options)


@dataclass(eq=False)
class BisectJob(WholeJob):
    """One search; `part` is what was looked at last, `sentences` what came of it."""

    WORK = "bisection"
    PROCESS = "memplan_dashboard.background.bisect_process"
    ELSEWHERE = "`memplan history bisect`"

    asked: BisectAsked
    until: float = MOST_SECONDS
    sentences: tuple[str, ...] = ()

    def cancel(self, patience: float = STOP_SECONDS) -> None:
        """End it, its work trees first; what was recorded stays."""
        with self._lock:
            if self.state.is_active:
                self._enter(State.CANCELLED)
            process = self._process
        if process is not None and patience:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
        super().cancel()

    def _read(self, values: dict[str, Any]) -> tuple[str, ...]:
        return tuple(values["sentences"])

    def _take(self, result: tuple[str, ...]) -> None:
        self.sentences = result
