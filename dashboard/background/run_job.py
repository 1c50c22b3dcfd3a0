"""A run of a built-in model as a job of the desk: it begins, tells how far it is, and can be ended."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from memplan_dashboard.background.jobs import State, spawn
from memplan_dashboard.background.solver_messages import read_message, write_message

from memplan_engine.errors import MemplanError
from memplan_engine.formats.memplan_json.json_base import parse
from memplan_engine.formats.memplan_json.run_format import RunFile, check_run

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


@dataclass(slots=True, eq=False)
class RunJob:
    """One run, as `Desk` keeps jobs; all of it is thread-safe. `part` is what it does now, `result` what came
    of it, `fault` why nothing did. A run cannot be held: at its limit `until` (seconds) it is ended."""

    session: str
    asked: Asked
    until: float = MOST_SECONDS
    state: State = State.WAITING
    part: str = ""
    fault: str = ""
    result: RunFile | None = None
    _begun: float | None = None
    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def seconds(self) -> float:
        """Since it began."""
        with self._lock:
            return 0.0 if self._begun is None else time.monotonic() - self._begun

    @property
    def process_id(self) -> int | None:
        """The id of its process; None when it has none."""
        with self._lock:
            return None if self._process is None else self._process.pid

    def line_up(self) -> None:
        """Wait for a turn."""

    def run(self) -> None:
        """Begin."""
        with self._lock:
            if self.state is not State.WAITING:
                return
            self.state, self._begun = State.RUNNING, time.monotonic()
        threading.Thread(target=self._follow, daemon=True).start()

    def cancel(self, patience: float = 0.0) -> None:
        """End it; there is nothing worth waiting for."""
        with self._lock:
            if self.state.is_active:
                self.state = State.CANCELLED
            process = self._process
        if process is not None:
            process.kill()
            process.wait(END_SECONDS)

    def suspend(self) -> None:
        """What the desk does at the limit."""
        with self._lock:
            if self.state is State.RUNNING:
                self.state = State.FAILED
                self.fault = f"ended after {self.until:.0f} s: `memplan run` has no limit"
        self.cancel()

    def _follow(self) -> None:
        """The life of the process: start it, say what is asked, listen until it ends."""
        try:
            with self._lock:
                if self.state is not State.RUNNING:
                    return
                process = self._process = spawn("memplan_dashboard.background.run_process")
            assert process.stdin is not None
            assert process.stdout is not None
            write_message(process.stdin, asdict(self.asked))
            while True:
                self._hear(read_message(process.stdout)[0])
        except (EOFError, OSError, ValueError, MemplanError) as error:
            self._bury(error)

    def _hear(self, values: dict[str, Any]) -> None:
        result = None
        if values["kind"] == "done":
            result = check_run(parse(RunFile, values["run"], self.asked.model), self.asked.model)
        with self._lock:
            if self.state is not State.RUNNING:
                return
            if values["kind"] == "progress":
                self.part = values["part"]
            elif values["kind"] == "error":
                self.state, self.fault = State.FAILED, values["message"]
            else:
                self.state, self.result = State.DONE, result

    def _bury(self, error: Exception) -> None:
        """The process has ended, or could not be started."""
        with self._lock:
            process = self._process
            if process is not None:
                process.kill()
                code = process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()
            if self.state is State.RUNNING:
                self.state = State.FAILED
                self.fault = (
                    f"the run cannot be started: {error}"
                    if process is None
                    else f"the process that ran it has ended (exit code {code})"
                )
            self._process = None
