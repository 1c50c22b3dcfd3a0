"""Runs the processes of recorded scripts as forks of one process that has imported torch.

A recorded script's process spends 2.5 of its 3 CPU seconds on importing torch. Started as
`python -m tests.support.forked_scripts`, the server reads a line of JSON for each fork, the arguments of
`_fork`, and answers with its process number. It writes the exit code to the file ENDED in the script's
folder.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import ROOT

ENDED = "ended"
LOOK_SECONDS = 0.01
"""Between two looks for the exit code of a fork."""


class ForkedScripts:
    """The server, seen from outside; call it in place of `script_run.start_module`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def __call__(self, module: str, folder: Path) -> Any:
        """Start `module` on `folder`; the result has what is used of a Popen."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__], cwd=ROOT, text=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )  # fmt: skip
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            asked = module, str(folder), str(Path.cwd()), dict(os.environ)
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            return Fork(int(self._process.stdout.readline()), folder / ENDED)

    def close(self) -> None:
        """End the server, and with it every fork."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()


class Fork:
    """A process that the server has forked, with the methods of a Popen."""

    def __init__(self, pid: int, ended: Path) -> None:
        self.pid, self.returncode, self._ended = pid, None, ended

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code, None before there is one."""
        if self.returncode is None:
            with contextlib.suppress(FileNotFoundError):
                self.returncode = int(self._ended.read_text())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once there is one.

        subprocess.TimeoutExpired: there is none after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                assert timeout is not None
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(LOOK_SECONDS)
        return code


def _fork(module: str, folder: str, home: str, variables: Mapping[str, str]) -> int:
    """Return the number of a new process that runs `module` on `folder` in `home`."""
    server = os.getpid()
    child = os.fork()
    if not child:
        code = 1
        try:
            _be_child(folder, home, variables, server)
            code = _run(module, folder)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)
    return child


def _be_child(folder: str, home: str, variables: Mapping[str, str], server: int) -> None:
    """Make this fork what `subprocess` would have made."""
    from memplan_engine.runtime.recorder.own_process import SAID

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    said = os.open(Path(folder, SAID), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for target, source in ((0, nothing), (1, nothing), (2, said)):
        os.dup2(source, target)
    os.chdir(home)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    request = Path(folder, "request.json")
    request.write_text(json.dumps({**json.loads(request.read_text()), "parent": server}))


def _run(module: str, folder: str) -> int:
    """Run `module` as `python -m` does and return its exit code."""
    sys.argv, sys.path[0] = [module, folder], str(Path.cwd())
    # It warns of modules that have been imported before they are run.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _import_everything() -> None:
    """Import what any script's process imports, and what the first run on fake tensors imports."""
    import torch
    import torch.distributed.device_mesh
    import torch.distributed.fsdp
    import torch.distributed.tensor

    from memplan_engine import observe_fake
    from memplan_engine.runtime.ranks import rank_process  # noqa: F401

    def step() -> None:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.rand(2, 2)).sum().backward()
        optimizer.step()

    observe_fake(step)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Fork what is asked for until the input ends."""
    _import_everything()
    answers = os.fdopen(os.dup(1), "w")
    asked, ended = os.pipe()
    os.set_blocking(asked, False)
    os.set_blocking(ended, False)
    signal.set_wakeup_fd(ended)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    folders: dict[int, Path] = {}
    while True:
        ready, _, _ = select.select([0, asked], [], [])
        if asked in ready:
            os.read(asked, 4096)
            _reap(folders)
        if 0 in ready:
            line = sys.stdin.readline()
            if not line:
                return
            words = json.loads(line)
            child = _fork(*words)
            folders[child] = Path(words[1])
            print(child, file=answers, flush=True)


def _reap(folders: dict[int, Path]) -> None:
    """Write the exit codes of the forks that have ended to their folders."""
    while folders:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        folder = folders.pop(child)
        with contextlib.suppress(OSError):
            (folder / "half").write_text(str(os.waitstatus_to_exitcode(status)))
            (folder / "half").rename(folder / ENDED)


if __name__ == "__main__":
    main()
