"""Who works on tasks: the processes of this machine, or, by the same protocol, others (`dask_workers`)."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from memplan_engine.errors import InputError
from memplan_engine.zoo.variant_runs import run_task
from memplan_engine.zoo.zoo_values import ZooAnswer, ZooTask


class Workers(Protocol):
    """Those who answer tasks, several at a time, in any order."""

    def submit(self, task: ZooTask) -> Future[ZooAnswer]:
        """Have `task` answered, soon."""

    def news(self) -> list[str]:
        """What has happened to workers since it was last asked for, a line each.

        Raises
        ------
        MemplanError: there will be no answers any more.
        """

    def close(self) -> None:
        """Let go of them; what they still work on is given up."""


class LocalWorkers:
    """`jobs` processes of this machine at a time, each for one task: a thread waits for each. They are forked
    from one that has imported torch and has one thread, which concurrent.futures has no executor for."""

    def __init__(self, jobs: int) -> None:
        if jobs < 1:
            raise InputError("--jobs", "", str(jobs), "1 or more")
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="memplan-zoo")

    def submit(self, task: ZooTask) -> Future[ZooAnswer]:
        """Have `task` answered by the next process that is free."""
        return self._pool.submit(run_task, task, self._stop.is_set, True)

    def news(self) -> list[str]:
        """Nothing: each answer says itself what happened to its process."""
        return []

    def close(self) -> None:
        """End the processes."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
