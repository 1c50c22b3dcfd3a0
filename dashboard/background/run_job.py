"""A run of a built-in model as a job of the scheduler: it begins, tells how far it is, and can be ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from memplan_dashboard.background.jobs import ProcessJob, State
from memplan_dashboard.background.spare import Spare

from memplan_engine.formats.memplan_json.json_base import parse
from memplan_engine.formats.memplan_json.run_format import RunFile, check_run
from memplan_engine.problem import Ints

PROCESS = "memplan_dashboard.background.run_process"
MOST_SECONDS = 300.0
END_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is run, and how."""

    model: str
    strategy: str = "auto"
    policy: str = "native"
    functional: bool = False
    check: bool = False
    profile: bool = False
    order: bool = False


@dataclass(eq=False)
class RunJob(ProcessJob):
    """One run, in the `spare` process where there is one. `part` is what it does now, `result` what came of
    it, which `keep` is told of at once: while a page is loaded again nobody looks. A run cannot be held: at
    its limit, `until` (seconds), it ends."""

    WORK = "run"

    asked: Asked
    until: float = MOST_SECONDS
    spare: Spare | None = None
    keep: Callable[[RunJob], None] | None = None
    part: str = ""
    result: RunFile | None = None

    def line_up(self) -> None:
        """Wait for a turn."""

    def run(self) -> None:
        """Begin."""
        with self._lock:
            if self.state is State.WAITING:
                self._enter(State.RUNNING)
                self._start(PROCESS, asdict(self.asked))

    def cancel(self, patience: float = 0.0) -> None:
        """End it; there is nothing worth waiting for."""
        with self._lock:
            if self.state.is_active:
                self._enter(State.CANCELLED)
            process = self._process
        if process is not None:
            process.kill()
            process.wait(END_SECONDS)

    def suspend(self) -> None:
        """What the scheduler does at the limit."""
        with self._lock:
            if self.state is State.RUNNING:
                self._enter(State.FAILED)
                self.fault = f"ended after {self.until:.0f} s: `memplan run` has no time limit"
        self.cancel()

    def _spawn(self, module: str) -> subprocess.Popen[bytes]:
        return (self.spare and self.spare.take()) or super()._spawn(module)

    def _hear(self, values: dict[str, Any], arrays: dict[str, Ints]) -> None:
        result = None
        if values["kind"] == "done":
            result = check_run(parse(RunFile, values["run"], self.asked.model), self.asked.model)
        with self._lock:
            if self.state is not State.RUNNING:
                return
            if values["kind"] == "progress":
                self.part = values["part"]
            elif values["kind"] == "error":
                self._enter(State.FAILED)
                self.fault = values["message"]
            else:
                self._enter(State.DONE)
                self.result = result
                if self.keep is not None:
                    self.keep(self)
