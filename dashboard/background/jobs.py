"""Long solves in processes of their own: progress, cancel, best so far, and going on after the limit.

A plain child process and two pipes, not `multiprocessing`: that would run Streamlit's script again in the
child, which takes it for the main module, and would pickle what it sends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from memplan_dashboard.background.solver_messages import (
    problem_message,
    read_bound,
    read_message,
    write_message,
)

from memplan_engine import MemplanError, Plan
from memplan_engine.plan import Parameter, make_offsets
from memplan_engine.problem import Ints
from memplan_engine.strategies import known_strategies
from memplan_engine.strategies.base import Progress, is_anytime

FIRST_SECONDS = 1.0
"""How long an anytime strategy is waited for before its best so far is shown."""
CANCEL_SECONDS = 1.0
"""How long a solver may take to stop when asked to; then it is killed, and its best so far counts."""
RATE_SECONDS = 2.0
"""Nodes per second are taken over this long."""
CAN_SUSPEND = hasattr(signal, "SIGSTOP")
PACKAGE = Path(__file__).resolve().parents[1]


def goes_on(strategy: str) -> bool:
    """Whether `strategy` is one that a job can go on with: it uses all the time it gets."""
    strategies = known_strategies()
    return strategy in strategies and is_anytime(strategies[strategy])


class State(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"
    DONE = "done"
    FAILED = "failed"

    @property
    def is_active(self) -> bool:
        """Whether something may still come without anybody's asking."""
        return self in (State.WAITING, State.RUNNING)


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job at one moment: seconds are those spent searching, `until` is where the search is suspended.

    `history` has the best arena and the bound each time that one of them changed, and last those of now;
    `fault` says why the search failed.
    """

    state: State
    seconds: float
    until: float
    history: tuple[Progress, ...]
    nodes_per_second: float | None
    fault: str = ""

    @property
    def now(self) -> Progress:
        """Best arena, bound and nodes."""
        return self.history[-1]


@dataclass(eq=False)
class ProcessJob:
    """Work that a process of its own does, until it is done, fails or is ended; all of it is thread-safe.

    `session` is whose job it is, `person` who has it and perhaps others; without one each session is a
    person's. It waits at least until `not_before` on the monotonic clock. `fault` says why it failed."""

    WORK: ClassVar[str] = "work"
    """What it does, in a word."""

    session: str
    _: KW_ONLY
    person: str = ""
    not_before: float = 0.0
    state: State = State.WAITING
    fault: str = ""
    _process: subprocess.Popen[bytes] | None = None
    _spent: float = 0.0
    _since: float | None = None
    _starts: int = 0
    _sent: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.person = self.person or self.session

    @property
    def seconds(self) -> float:
        """Seconds spent working so far; those in which it was suspended do not count."""
        with self._lock:
            return self._spent + (time.monotonic() - self._since if self._since is not None else 0.0)

    @property
    def process_id(self) -> int | None:
        """The id of its process; None when it has none."""
        with self._lock:
            return None if self._process is None else self._process.pid

    def make_way(self) -> bool:
        """Give up its place and wait for the next turn; False where it cannot be held."""
        return False

    def _enter(self, state: State) -> None:
        """Change the state and keep the clock: only running counts."""
        now = time.monotonic()
        if self._since is not None:
            self._spent += now - self._since
        self._since = now if state is State.RUNNING else None
        self.state = state

    def _start(self, module: str, values: dict[str, Any], arrays: dict[str, Ints] | None = None) -> None:
        """Run `module`, which is sent `values` and `arrays`; what it says is for `_hear`."""
        self._starts, self._sent = self._starts + 1, False
        given = module, values, arrays, self._starts
        threading.Thread(target=self._follow, args=given, daemon=True).start()

    def _follow(
        self, module: str, values: dict[str, Any], arrays: dict[str, Ints] | None, start: int
    ) -> None:
        """The life of one process: start it, say what is asked, listen until it ends."""
        try:
            with self._lock:
                if self.state is not State.RUNNING or start != self._starts:
                    return
                process = self._process = self._spawn(module)
            assert process.stdin is not None
            assert process.stdout is not None
            write_message(process.stdin, values, arrays)
            self._sent = True
            while True:
                self._hear(*read_message(process.stdout))
        except (EOFError, OSError, ValueError, MemplanError) as error:
            self._bury(error)

    def _spawn(self, module: str) -> subprocess.Popen[bytes]:
        return spawn(module)

    def _ask_to_stop(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        try:
            write_message(process.stdin, {"kind": "stop"})
        except OSError:
            process.kill()

    def _hear(self, values: dict[str, Any], arrays: dict[str, Ints]) -> None:
        """Take what the process says."""
        raise NotImplementedError

    def _bury(self, error: Exception) -> None:
        """The process has ended, or could not be started."""
        with self._lock:
            process = self._process
            fault = f"the {self.WORK} cannot be started: {error}"
            if process is not None:
                process.kill()
                fault = f"the process of the {self.WORK} has ended (exit code {process.wait()})"
                for pipe in filter(None, (process.stdin, process.stdout)):
                    # What was still to be written to a process that is gone.
                    with suppress(OSError):
                        pipe.close()
            if self.state in (State.RUNNING, State.SUSPENDED):
                self._enter(State.FAILED)
                self.fault = fault
            self._process = None


@dataclass(eq=False)
class Job(ProcessJob):
    """One search beyond `first`, the plan that was found while people waited.

    Seconds and history begin with those of `first`. With a `capacity` (bytes) the search ends as soon as a
    plan fits into it, or is proved not to. `nodes` limits the nodes it visits, None for no limit.
    """

    WORK = "search"

    first: Plan
    until: float
    threads: int = 0
    capacity: int | None = None
    nodes: int | None = None
    best: Plan = field(init=False)
    _history: list[Progress] = field(init=False)
    _samples: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))
    _nodes: int = field(init=False)
    _nodes_before: int = 0
    _held: bool = False
    _granted_at: float = 0.0
    _ended: threading.Condition = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.best, self._spent, self._nodes = self.first, self.first.seconds, self.first.nodes
        self._ended = threading.Condition(self._lock)
        self._history = [self._now()]

    # What pages ask.

    def snapshot(self) -> JobSnapshot:
        """How far it has come."""
        with self._lock:
            seconds = self.seconds
            history = (*self._history, replace(self._now(), seconds=seconds))
            return JobSnapshot(self.state, seconds, self.until, history, self._rate(), self.fault)

    def allow(self, seconds: float) -> None:
        """Change the limit, counted from where the last `grant` was."""
        with self._lock:
            self.until = self._granted_at + seconds

    def grant(self, seconds: float) -> None:
        """Let the search go on for `seconds` from now."""
        with self._lock:
            self._granted_at = self.seconds
            self.until = self._granted_at + seconds

    def cancel(self, patience: float = CANCEL_SECONDS) -> None:
        """End the search and keep the best so far; returns when its process is gone.

        The solver is asked to stop and has `patience` seconds to give what it has; then it is killed.
        """
        with self._lock:
            process, running = self._process, self.state is State.RUNNING
            if self.state in (State.WAITING, State.RUNNING, State.SUSPENDED):
                self._enter(State.CANCELLED)
            if process is not None and running and self._sent and patience:
                self._ask_to_stop(process)
                self._wait_for_end(process, patience)
            if process is not None and self._process is process:
                process.kill()
                self._wait_for_end(process, CANCEL_SECONDS)

    # What the scheduler does.

    def line_up(self) -> None:
        """Wait for a turn, whatever was before."""
        with self._lock:
            if self.state is State.RUNNING:
                return
            if self.state is not State.SUSPENDED and self._process is not None:
                self._wait_for_end(self._process, CANCEL_SECONDS)
            self._enter(State.WAITING)

    def run(self) -> None:
        """Begin, or go on: a suspended search wakes where it was, an ended one begins with another seed."""
        with self._lock:
            # A process that is not held is about to end: the scheduler asks again when it is gone.
            if self.state is not State.WAITING or (self._process is not None and not self._held):
                return
            self._enter(State.RUNNING)
            if self._process is not None:
                self._held = False
                self._process.send_signal(signal.SIGCONT)
                return
            self.fault, self._nodes_before = "", self._nodes
            values, arrays = problem_message(self.first.problem)
            asked = {"strategy": self.first.strategy, "seed": self._starts, "threads": self.threads}
            asked |= {"capacity": self.capacity, "nodes": self.nodes}
            self._start("memplan_dashboard.background.solver_process", {**values, **asked}, arrays)

    def suspend(self) -> None:
        """Hold the search where it is; where the system cannot, end it."""
        if self.state is State.RUNNING and not self._hold(State.SUSPENDED):
            self.cancel()

    def make_way(self) -> bool:
        """Hold the search where it is until its next turn; False where the system cannot."""
        return self._hold(State.WAITING)

    def _hold(self, state: State) -> bool:
        with self._lock:
            if not CAN_SUSPEND or self._process is None or self.state is not State.RUNNING:
                return False
            self._enter(state)
            self._held = True
            self._process.send_signal(signal.SIGSTOP)
            return True

    def _enter(self, state: State) -> None:
        self._samples.clear()
        super()._enter(state)

    def _now(self) -> Progress:
        return Progress(
            self.seconds, self.best.arena_bytes, self.best.bound.nbytes, self._nodes, _found_by(self.best)
        )

    def _rate(self) -> float | None:
        """Nodes per second of late; None while there is nothing to divide."""
        if len(self._samples) < 2 or not self._samples[-1][1]:
            return None
        last = self._samples[-1]
        first = next(each for each in self._samples if each[0] >= last[0] - RATE_SECONDS)
        return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else None

    def _wait_for_end(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._ended.wait_for(lambda: self._process is not process, seconds)

    def _hear(self, values: dict[str, Any], arrays: dict[str, Ints]) -> None:
        with self._lock:
            if values["kind"] == "error":
                self._enter(State.FAILED)
                self.fault = values["message"]
                return
            self._nodes = self._nodes_before + values["nodes"]
            self._improve(values, arrays.get("offsets"))
            seconds = self.seconds
            self._samples.append((seconds, self._nodes))
            if values["kind"] == "done" and self.state is State.RUNNING:
                self._enter(State.DONE)
            done = self.state is State.DONE or self.best.optimal
            self.best = replace(self.best, nodes=self._nodes, seconds=seconds, cut_short=not done)

    def _improve(self, values: dict[str, Any], offsets: Ints | None) -> None:
        """Take what is better: offsets of a smaller arena, a higher bound."""
        before = self._now()
        bound, best = read_bound(values["bound"]), self.best
        if bound is not None and bound.nbytes > best.bound.nbytes:
            best = replace(best, bound=bound)
        if offsets is not None:
            smaller = replace(
                best,
                offsets=make_offsets(offsets),
                parameters=_parameters(best, values["found_by"]),
                threads=values["threads"],
            )
            if smaller.arena_bytes < best.arena_bytes:
                best = smaller
        self.best = best
        after = self._now()
        if (after.arena_bytes, after.bound_bytes) != (before.arena_bytes, before.bound_bytes):
            self._history.append(after)

    def _bury(self, error: Exception) -> None:
        with self._lock:
            super()._bury(error)
            self._held = False
            self._ended.notify_all()


def _found_by(plan: Plan) -> str:
    return str(dict(plan.parameters).get("found_by") or "")


def _parameters(plan: Plan, found_by: str) -> tuple[tuple[str, Parameter], ...]:
    others = tuple(pair for pair in plan.parameters if pair[0] != "found_by")
    return (*others, ("found_by", found_by)) if found_by else others


def import_path(entries: Sequence[str]) -> str:
    """The child's PYTHONPATH: ours, without the folder of the pages, whose modules have common names."""
    # As it is now: Streamlit puts a folder in front while a page runs and takes it away again, and a list
    # that loses an entry while it is walked over skips the next one.
    entries = list(entries)
    return os.pathsep.join(each for each in entries if each and Path(each).resolve() != PACKAGE)


def spawn(module: str) -> subprocess.Popen[bytes]:
    """A process that runs `module`, with pipes to and from it; by the thread that listens to it."""
    # A group of its own: where a process is held while its server ends, POSIX then wakes it with a hang-up.
    # On Linux it ends with the thread that starts it, so that has to be the one that listens to it.
    own_group: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": import_path(sys.path)},
        **own_group,
    )
