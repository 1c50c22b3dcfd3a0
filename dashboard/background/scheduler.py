"""Schedules jobs: who may run, for how long, and whose owner has gone."""

from __future__ import annotations

import atexit
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from memplan_dashboard.background.jobs import Job, State
from memplan_dashboard.background.run_job import WholeJob

from memplan_engine.system import count_cores

if TYPE_CHECKING:
    # Not for the first page: it brings all that rewrites graphs.
    from memplan_dashboard.background.fit_job import FitJob

AnyJob: TypeAlias = "Job | FitJob | WholeJob"
"""What a scheduler keeps: searches that can be held, and fits and runs that cannot."""
TICK_SECONDS = 0.2
GRACE_SECONDS = 10.0
"""How long a page may take to load again: then its session is gone, and its jobs with it."""
KEEP_SECONDS = 900.0
"""How long a suspended search is kept in memory."""


@dataclass(slots=True, eq=False)
class JobScheduler:
    """Runs at most `most` jobs at once and one a session; the others wait, and people take turns.

    The next turn is of whoever has the fewest jobs running, of several the one whose last turn is longest
    ago; of one person's jobs the first that came is first. Who has two running makes way with the later for
    whoever has none.
    """

    is_alive: Callable[[str], bool]
    most: int = field(default_factory=lambda: max(2, count_cores()))
    jobs: list[AnyJob] = field(default_factory=list)
    _turns: Counter[str] = field(default_factory=Counter)
    _seen: dict[str, float] = field(default_factory=dict)
    _suspended: dict[int, float] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _work: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._watch, name="solver-jobs", daemon=True).start()
        atexit.register(self.close)

    def submit(self, job: AnyJob, beside: Collection[AnyJob] = ()) -> None:
        """Have `job` run as soon as there is room; the session's others are cancelled, but not those it runs
        `beside`."""
        for other in self._others(job):
            if other not in beside:
                other.cancel()
        with self._lock:
            self._seen[job.session] = time.monotonic()
            if job not in self.jobs or not job.state.is_active:
                self.jobs = [*(other for other in self.jobs if other is not job), job]
            job.line_up()
            self._admit()
        self._work.set()

    def take_over(self, session: str, person: str, wanted: Callable[[AnyJob], bool]) -> AnyJob | None:
        """The job that is `wanted` of a session of the `person` that has gone, as after a reload: from now on
        it is that of `session`. None where there is no such job."""
        with self._lock:
            for job in self.jobs:
                if job.person == person and wanted(job) and not self.is_alive(job.session):
                    job.session = session
                    self._seen[session] = time.monotonic()
                    return job
        return None

    def before(self, job: AnyJob) -> int:
        """How many of those that wait have their turn before `job`, which waits itself."""
        with self._lock:
            line = self._line()
            return line.index(job) if job in line else 0

    def waits_for_its_own(self, job: AnyJob) -> bool:
        """Whether it is another job of its session that keeps `job` waiting."""
        return any(other.state is State.RUNNING for other in self._others(job))

    def close(self) -> None:
        """End every process."""
        with self._lock:
            several, self.jobs = self.jobs, []
        for job in several:
            job.cancel(patience=0.0)

    def _others(self, job: AnyJob) -> list[AnyJob]:
        with self._lock:
            return [other for other in self.jobs if other.session == job.session and other is not job]

    def _running(self) -> list[AnyJob]:
        return [job for job in self.jobs if job.state is State.RUNNING]

    def _line(self) -> list[AnyJob]:
        """Those that wait, in the order of their turns as things stand."""
        places, turns = Counter(job.person for job in self._running()), self._turns.copy()
        now = time.monotonic()
        waiting = [job for job in self.jobs if job.state is State.WAITING and job.not_before <= now]
        line: list[AnyJob] = []
        while waiting:
            job = min(waiting, key=lambda job: (places[job.person], turns[job.person]))
            waiting.remove(job)
            line.append(job)
            places[job.person] += 1
            turns[job.person] = max(turns.values(), default=0) + 1
        return line

    def _admit(self) -> None:
        running = self._running()
        for job in self._line():
            if job.session in (other.session for other in running):
                continue
            if len(running) >= self.most:
                over = self._one_too_many(running, job.person)
                if over is None or not over.make_way():
                    continue
                running.remove(over)
            job.run()
            running.append(job)
            self._turns[job.person] = max(self._turns.values(), default=0) + 1

    def _one_too_many(self, running: list[AnyJob], person: str) -> AnyJob | None:
        """The last job of somebody who has several running, while `person` has none."""
        places = Counter(job.person for job in running)
        several = [job for job in running if places[job.person] > 1]
        return several[-1] if several and not places[person] else None

    def _watch(self) -> None:
        while True:
            self._work.wait()
            time.sleep(TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        """Look after every job once."""
        with self._lock:
            several = list(self.jobs)
        for job in several:
            if self._is_gone(job.session):
                job.cancel(patience=0.0)
            elif job.state is State.RUNNING and job.seconds >= job.until:
                job.suspend()
            elif self._kept_too_long(job):
                job.cancel()
        with self._lock:
            self.jobs = [job for job in self.jobs if job.state.is_active or job.process_id is not None]
            self._admit()
            if not self.jobs:
                self._seen.clear()
                self._turns.clear()
                self._work.clear()

    def _is_gone(self, session: str) -> bool:
        now = time.monotonic()
        if self.is_alive(session):
            self._seen[session] = now
        return now - self._seen.setdefault(session, now) > GRACE_SECONDS

    def _kept_too_long(self, job: AnyJob) -> bool:
        if job.state is not State.SUSPENDED:
            self._suspended.pop(id(job), None)
            return False
        now = time.monotonic()
        return now - self._suspended.setdefault(id(job), now) > KEEP_SECONDS
