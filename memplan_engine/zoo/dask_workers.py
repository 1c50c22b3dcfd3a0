"""The workers of a cluster: Dask distributed gives them tasks, and those of a worker that dies to another."""

from __future__ import annotations

import logging
import re
import time
from concurrent.futures import Future
from typing import Any

from memplan_engine.errors import InputError, MemplanError, MissingDependencyError, one_line
from memplan_engine.zoo.variant_runs import run_task
from memplan_engine.zoo.zoo_values import ZooAnswer, ZooTask

ADDRESS = re.compile(r"[a-z]+://[^/]+:\d+")
CONNECT_SECONDS = 20.0
NEWS_SECONDS = 1.0
"""Between two looks at which workers there are."""


class DaskWorkers:
    """Those of the cluster whose scheduler is at `address`, "tcp://host:8786". They have memplan and what the
    models import in the same versions, and the manifest's folder at the same place; each runs a task in a
    process of its own, as `LocalWorkers` do, and writes nothing.

    Raises
    ------
    InputError: no scheduler there, or one of another version. MissingDependencyError: distributed is not
    installed.
    """

    def __init__(self, address: str, *, seconds: float = CONNECT_SECONDS) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise MissingDependencyError("Dask distributed", "cluster", "a zoo on a cluster") from None
        expected = "the address of a Dask scheduler that runs, as tcp://host:8786 (`dask scheduler`)"
        if not ADDRESS.fullmatch(address):
            raise InputError("--scheduler", "", repr(address), expected)
        # What happens to the connection is told by who waits for answers.
        for name in ("distributed.client", "distributed.comm", "distributed.core"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            self._client: Any = Client(address, timeout=seconds, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError, RuntimeError) as error:
            said = one_line(f"{type(error).__name__}: {error}", 200)
            raise InputError("--scheduler", "", f"{address!r} ({said})", expected) from None
        self._pool: Any = self._client.get_executor(pure=False)
        self._known = self._workers()
        self._looked = time.monotonic()
        self._lonely = False

    def submit(self, task: ZooTask) -> Future[ZooAnswer]:
        """Have `task` answered by a worker of the cluster."""
        answer: Future[ZooAnswer] = self._pool.submit(run_task, task)
        return answer

    def news(self) -> list[str]:
        """Workers that are gone, and that there is none any more.

        Raises
        ------
        MemplanError: the scheduler is gone.
        """
        if self._client.status == "closed":
            raise MemplanError("the scheduler of the cluster is gone")
        if time.monotonic() - self._looked < NEWS_SECONDS:
            return []
        known, self._known = self._known, self._workers()
        self._looked = time.monotonic()
        told = [
            f"worker {name} is gone: what it ran is given to another one"
            for name in sorted(known - self._known)
        ]
        if not self._known and not self._lonely:
            told.append("the cluster has no workers: waiting for one (`dask worker`)")
        self._lonely = not self._known
        return told

    def _workers(self) -> set[str]:
        try:
            return set(self._client.scheduler_info()["workers"])
        except (OSError, TimeoutError, RuntimeError):
            # Whether it comes back is seen at the answers.
            return set()

    def close(self) -> None:
        """Take back what nobody has answered yet, and leave the cluster."""
        self._pool.shutdown(wait=False)
        self._client.close(timeout=CONNECT_SECONDS)
