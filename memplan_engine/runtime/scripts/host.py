"""The process from which runs of scripts are forked, seen from the one that asks for them: started at the
first run, kept for further ones, and gone with who has started it. Known without torch.

Most of what a short run takes is to import torch and what records it: now once for all runs."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from memplan_engine.errors import MemplanError
from memplan_engine.system import ended_words
from memplan_engine.torch_capture.torch_fake import torch_version

PROCESS = Path(__file__).with_name("host_process.py")
READ_ON_IMPORT = (
    *("PYTHON", "TORCH", "PYTORCH", "CUDA", "NVIDIA", "NCCL", "OMP", "GOMP", "KMP", "MKL", "OPENBLAS"),
    *("NUMBA", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "HOME"),
)
"""How variables of the environment begin that Python, torch, NumPy or the C library read when they start: a
process that has started with others is of no use."""
PART = 1 << 16
"""Bytes that are read at once."""
END_SECONDS = 10.0
"""For a process to end that has been told to; it takes milliseconds."""


class ScriptRun:
    """A run in a process of its own, `process`; `returncode` is None until it has ended, then its exit code,
    negative for the signal that ended it."""

    def __init__(self, host: _Host, number: int) -> None:
        self.host, self.number = host, number
        self.process = 0
        self.returncode: int | None = None
        self._begun, self._ended = threading.Event(), threading.Event()

    def poll(self) -> int | None:
        """`returncode`, now."""
        return self.returncode

    def wait(self, seconds: float | None = None) -> int | None:
        """`returncode` at its end, or None after `seconds`."""
        self._ended.wait(seconds)
        return self.returncode

    def end(self) -> None:
        """Have it ended by now, with all that it has started."""
        if self.returncode is None:
            self.host.send({"end": self.number})
            self._ended.wait()

    def heard(self, answer: dict[str, int]) -> None:
        """Take note of what the host says."""
        if "process" in answer:
            self.process = answer["process"]
        else:
            self.returncode = answer["code"]
            self._ended.set()
        self._begun.set()

    def begun(self) -> bool:
        """Wait until it has a process; whether it has come to that."""
        self._begun.wait()
        return self.process != 0

    def lost(self, code: int) -> None:
        """The host has ended with `code`."""
        if self.process:
            with suppress(OSError):
                os.killpg(self.process, signal.SIGKILL)
        self.heard({"code": code or -signal.SIGKILL})


class _Host:
    """A process from which runs are forked; `key` is what it has started with."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.runs: dict[int, ScriptRun] = {}
        self.has_begun = self.gone = self._retired = self._closed = False
        self._lock = threading.Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        asks, self.asks = os.pipe()
        self.answers, answers = os.pipe()
        try:
            self.process = subprocess.Popen(
                # No folder of ours is where modules are looked for.
                [sys.executable, "-P", str(PROCESS)],
                start_new_session=True,
                stdin=asks,
                stdout=answers,
                stderr=self._said,
            )
        finally:
            os.close(asks)
            os.close(answers)
        self._reader = threading.Thread(target=self._read, name="memplan-host", daemon=True)
        _alive.add(self)
        self._reader.start()

    def begin(self, number: int, asked: dict[str, Any]) -> ScriptRun | None:
        """The run, which has begun; None where the host is gone."""
        run = ScriptRun(self, number)
        with self._lock:
            if self.gone:
                return None
            self.runs[number] = run
        self.send({"number": number, **asked})
        try:
            return run if run.begun() else None
        except BaseException:
            # Interrupted: it is not to go on where nobody waits for it.
            self.send({"end": number})
            raise

    def send(self, message: dict[str, Any]) -> None:
        """Ask for something. Where nobody hears it any more, `_read` knows."""
        left = memoryview(json.dumps(message).encode() + b"\n")
        with self._lock:
            while left and not self._closed:
                try:
                    left = left[os.write(self.asks, left) :]
                except BrokenPipeError:
                    return

    def _read(self) -> None:
        """Hand out what the host says, to its end."""
        unread = b""
        while part := os.read(self.answers, PART):
            *lines, unread = (unread + part).split(b"\n")
            for line in lines:
                self._hand_out(json.loads(line))
        code = self.process.wait()
        with self._lock:
            self.gone = True
            left, self.runs = list(self.runs.values()), {}
        os.close(self.answers)
        self.close()
        _alive.discard(self)
        for run in left:
            run.lost(code)

    def _hand_out(self, answer: dict[str, int]) -> None:
        self.has_begun = True
        with self._lock:
            run = self.runs[answer["number"]]
            if "code" in answer:
                del self.runs[answer["number"]]
        run.heard(answer)
        if self._retired:
            self.retire()

    def retire(self) -> None:
        """Let it end after the runs that go on."""
        with self._lock:
            self._retired = True
            runs = bool(self.runs)
        if not runs:
            self.close()

    def close(self) -> None:
        """Have it end, with all that runs."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.asks)

    def end(self) -> None:
        """As `close`, and wait for it."""
        self.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join(END_SECONDS)

    def forget(self) -> None:
        """Leave it to the process that has started it: this one is a fork of that."""
        if not self._closed:
            os.close(self.asks)
        if not self.gone:
            os.close(self.answers)

    def last_words(self) -> str:
        """How it has ended, in words."""
        self._said.seek(0)
        return ended_words(self.process.wait(), self._said.read().decode(errors="replace"))


_hosts: dict[str, _Host] = {}
"""Those for further runs of this process, by the modules that they call."""
_alive: set[_Host] = set()
"""All that this process has started and that have not ended."""
_lock = threading.Lock()
_numbers = itertools.count(1)


def start_run(module: str, folder: Path, said: Path, name: str) -> ScriptRun:
    """A process, forked from one that has imported `module`, in which `main` of `module` is called with
    `folder`: with the variables and the current folder of this one, and what it says on stderr in `said`.

    Raises
    ------
    MemplanError: `module` cannot be imported; with `name`.
    """
    asked = {
        "module": module,
        "folder": str(folder),
        "said": str(said),
        "home": os.getcwd(),
        "environment": dict(os.environ),
    }
    while True:
        host = _host(module)
        run = host.begin(next(_numbers), asked)
        if run is not None:
            return run
        # One that has served before may have been ended by whoever; another one takes its place.
        if not host.has_begun:
            raise MemplanError(f"{name}: {host.last_words()}")


def _host(module: str) -> _Host:
    """One for `module` that has started with what holds now."""
    key = _key()
    with _lock:
        host = _hosts.get(module)
        if host is None or host.gone or host.key != key:
            if host is not None:
                host.retire()
            host = _hosts[module] = _Host(key)
        return host


def _key() -> Any:
    variables = sorted(item for item in os.environ.items() if item[0].startswith(READ_ON_IMPORT))
    places = os.environ.get("PYTHONPATH", "")
    # Python makes them absolute when it starts.
    relative = places and not all(map(os.path.isabs, places.split(os.pathsep)))
    return sys.executable, variables, os.getcwd() if relative else "", torch_version()


@atexit.register
def _end() -> None:
    for host in list(_alive):
        host.end()


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    for host in _alive:
        host.forget()
    _alive.clear()
    _hosts.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
