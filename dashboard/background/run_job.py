"""A run of a built-in model as a job of the scheduler: it begins, tells how far it is, and can be ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

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
class WholeJob(ProcessJob):
    """Work that cannot be held: at its limit, `until` (seconds), it ends. `part` is what it does now."""

    PROCESS: ClassVar[str]
    """The module that does it."""
    ELSEWHERE: ClassVar[str] = ""
    """What has no such limit."""

    asked: Any
    until: float = MOST_SECONDS
    part: str = ""

    def line_up(self) -> None:
        """Wait for a turn."""

    def run(self) -> None:
        """Begin."""
        with self._lock:
            if self.state is State.WAITING:
                self._enter(State.RUNNING)
                self._start(self.PROCESS, asdict(self.asked))

    def cancel(self, patience: float = 0.0) -> None:
        """End it; there is nothing worth waiting for."""
        with self._lock:
            if self.state.is_active:
                self._enter(State.CANCELLED)
            process = self._process
        if process is not None:
            process.kill()
            # The thread that listens to it waits for its end, too.
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)

    def suspend(self) -> None:
        """What the scheduler does at the limit."""
        with self._lock:
            if self.state is State.RUNNING:
                self._enter(State.FAILED)
                self.fault = f"ended after {self.until:.0f} s: {self.ELSEWHERE} has no time limit"
        self.cancel()

    def _hear(self, values: dict[str, Any], arrays: dict[str, Ints]) -> None:
        result = self._read(values) if values["kind"] == "done" else None
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
                self._take(result)

    def _read(self, values: dict[str, Any]) -> Any:
        """What the process has sent at its end."""
        raise NotImplementedError

    def _take(self, result: Any) -> None:
        """Keep it."""
        raise NotImplementedError


@dataclass(eq=False)
class RunJob(WholeJob):
    """One run, in the `spare` process where there is one. `result` is what came of it, which `keep` is told
    of at once: while a page is loaded again nobody looks."""

    WORK = "run"
    PROCESS = PROCESS
    ELSEWHERE = "`memplan run`"

    asked: Asked
    spare: Spare | None = None
    keep: Callable[[RunJob], None] | None = None
    result: RunFile | None = None

    def _spawn(self, module: str) -> subprocess.Popen[bytes]:
        return (self.spare and self.spare.take()) or super()._spawn(module)

    def _read(self, values: dict[str, Any]) -> RunFile:
        return check_run(parse(RunFile, values["run"], self.asked.model), self.asked.model)

    def _take(self, result: RunFile) -> None:
        self.result = result
        if self.keep is not None:
            self.keep(self)
