"""The process from which runs of scripts are forked: it imports what they take once, and has one thread.

Started as a file by `host`. A line of JSON on stdin asks for a run: `Asked`, or names one that is to end; a
line on stdout tells the id of the process of each run, later its exit code, negative for the signal that
ended it. What a run has started ends with it, and all of them with this process, which ends with its stdin.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

IDLE_SECONDS = 300.0
"""Without a run for so long it gives its memory back; who asks again starts another one."""
PART = 1 << 16
"""Bytes that are read at once."""
EXIT_FAILED = 1
"""The exit code of Python after an error."""


@dataclass(frozen=True)
class Asked:
    """A run: its number among those that are asked for, its variables of the environment and its current
    folder; `main` of `module` is called with `folder`. What it says on stderr goes to the file `said`."""

    number: int
    module: str
    folder: str
    said: str
    home: str
    environment: dict[str, str]


@dataclass
class _Host:
    """What it reads from, writes to and hears of children that end by, and the runs that go on, by their
    processes."""

    asks: int
    answers: int
    wakes: tuple[int, int]
    live: dict[int, int] = field(default_factory=dict)

    def serve(self) -> None:
        """Do what is asked for until nobody asks any more."""
        unread = b""
        while True:
            limit = None if self.live else IDLE_SECONDS
            ready, _, _ = select.select([self.asks, self.wakes[0]], [], [], limit)
            if self.wakes[0] in ready:
                os.read(self.wakes[0], PART)
                self._tell_ended()
            if self.asks in ready:
                part = os.read(self.asks, PART)
                if not part:
                    return
                *lines, unread = (unread + part).split(b"\n")
                for line in lines:
                    self._do(json.loads(line))
            if not ready:
                return

    def _do(self, asked: dict[str, Any]) -> None:
        if "end" in asked:
            for process in [process for process, number in self.live.items() if number == asked["end"]]:
                _kill(process)
            return
        run = Asked(**asked)
        main = importlib.import_module(run.module).main
        # What is there stays: no run looks for garbage in it, or writes into memory that all share.
        gc.freeze()
        host = os.getpid()
        process = os.fork()
        if process == 0:
            self._become(run, main, host)
        _have_own_group(process)
        self.live[process] = run.number
        self._tell(number=run.number, process=process)

    def _become(self, run: Asked, main: Callable[[Path], None], host: int) -> NoReturn:
        """Be the run, as a process of its own that was started for it."""
        code = EXIT_FAILED
        try:
            _have_own_group(0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (self.asks, self.answers, *self.wakes):
                os.close(number)
            _enter(run)
            from memplan_engine.system import end_with_parent

            end_with_parent()
            # It was gone before this process could ask to end with it.
            if os.getppid() == host:
                main(Path(run.folder))
                code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if not isinstance(end.code, int | None):
                print(end.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            _leave(code)

    def _tell_ended(self) -> None:
        for process in list(self.live):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                _kill(process)
                number = self.live.pop(process)
                self._tell(number=number, code=os.waitstatus_to_exitcode(status))

    def _tell(self, **answer: int) -> None:
        os.write(self.answers, json.dumps(answer).encode() + b"\n")

    def end(self) -> None:
        """End all that still runs."""
        for process in self.live:
            _kill(process)
            os.waitpid(process, 0)


def _have_own_group(process: int) -> None:
    """Asked for by both sides: whoever is first, it is there when either goes on."""
    try:
        os.setpgid(process, process)
    except OSError:
        # Already at its end.
        return


def _kill(process: int) -> None:
    """End `process`, with what it has started."""
    try:
        os.killpg(process, signal.SIGKILL)
    except OSError:
        # Nothing of it is left.
        return


def _enter(run: Asked) -> None:
    """Have what a process has from its start: streams, variables, folder and path of its own."""
    said = os.open(run.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(said, 2)
    os.close(said)
    os.environ.clear()
    os.environ.update(run.environment)
    os.chdir(run.home)
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, run.home)
    importlib.invalidate_caches()
    sys.argv = [str(sys.modules[run.module].__file__), run.folder]


def _leave(code: int) -> NoReturn:
    """End as Python does, but for threads that are left running, which are not waited for."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


def _be_of_this_code() -> None:
    """Have `memplan_engine` be that of this file, wherever it was found by who has started it."""
    home = Path(__file__).resolve().parents[2]
    spec = importlib.util.spec_from_file_location(
        home.name, home / "__init__.py", submodule_search_locations=[str(home)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules[home.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def main() -> None:
    """Serve who has started this process."""
    asks, answers = os.dup(0), os.dup(1)
    # What is printed on import is no answer.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)
    # Nobody's folder is held.
    os.chdir("/")
    _be_of_this_code()
    wakes = os.pipe()
    for end in wakes:
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes[1], warn_on_full_buffer=False)
    host = _Host(asks, answers, wakes)
    try:
        host.serve()
    finally:
        host.end()
    # There is nothing of torch's to be undone.
    os._exit(0)


if __name__ == "__main__":
    main()
