"""One process kept ready: it has loaded what takes seconds, and waits to be told what to do."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from memplan_dashboard.background.jobs import spawn

LOOK_SECONDS = 1.0
IDLE_SECONDS = 300.0
"""How long it is kept for people who do not come back to what it is for."""


class Spare:
    """At most one process of `module` that nobody has asked anything yet. It ends with the sessions that want
    it, as `is_alive` says, or when none has asked for it for IDLE_SECONDS; and, as every process that `spawn`
    starts, with its server. All of it is thread-safe."""

    def __init__(self, module: str, is_alive: Callable[[str], bool]) -> None:
        self._module, self._is_alive = module, is_alive
        self._lock = threading.Lock()
        self._wanted: dict[str, float] = {}
        self._keeper: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = False

    def want(self, session: str) -> None:
        """Have one ready for `session` soon. One that ended by itself is not started again."""
        with self._lock:
            self._wanted[session] = time.monotonic()
            if self._keeper is None and not self._failed:
                self._keeper = threading.Thread(target=self._keep, name="spare", daemon=True)
                self._keeper.start()

    def take(self) -> subprocess.Popen[bytes] | None:
        """The process, for good; None where there is none."""
        with self._lock:
            process, self._process, self._keeper = self._process, None, None
        return process if process is not None and process.poll() is None else None

    def _keep(self) -> None:
        """The life of one process; to its end, even once it is taken: on Linux it ends with this thread."""
        process = spawn(self._module)
        with self._lock:
            ours = self._keeper is threading.current_thread()
            if ours:
                self._process = process
        if not ours:
            process.kill()
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
            with self._lock:
                if self._process is process and not self._is_wanted():
                    process.kill()
                    self._process = self._keeper = None
        with self._lock:
            if self._process is process:
                self._process, self._keeper, self._failed = None, None, True

    def _is_wanted(self) -> bool:
        now = time.monotonic()
        self._wanted = {
            session: since
            for session, since in self._wanted.items()
            if self._is_alive(session) and now - since < IDLE_SECONDS
        }
        return bool(self._wanted)
