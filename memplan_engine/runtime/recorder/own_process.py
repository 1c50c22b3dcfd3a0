"""A predicted run in a process that is thrown away after it: what believes in a card goes on doing so.

It is forked: a model that is there already cannot be sent in general. Within it is one thread: modes of torch
are those of one, and so is what is recorded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from memplan_engine.errors import InputError
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.process_answer import SAID, answer, leave
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.system import end_with_parent
from memplan_engine.torch_capture.torch_fake import patched
from memplan_engine.torch_capture.torch_storages import OperatorMode
from memplan_engine.torch_capture.training.torch_origins import who_asks

ONE_THREAD = "tensors in the thread that is recorded, or in a ThreadPoolExecutor"


def observed_apart(observe: Callable[[], Observation], name: str) -> Observation:
    """What `observe()` gives, called in a process of its own, which ends with it, or with this one.

    Raises
    ------
    InputError: as raised there. MemplanError: a process that ends without an answer.
    """
    with scratch_folder() as folder:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        with warnings.catch_warnings():
            # Of threads that are not there in the child: it uses none.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _be_child(observe, folder, parent)
        status = None
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        finally:
            if status is None:
                # Interrupted.
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        return answer(folder, status, name)


def _be_child(observe: Callable[[], Observation], folder: Path, parent: int) -> None:
    """Leave in `folder` what became of `observe()`, and end: nothing of the parent's is undone here."""
    code = 1
    try:
        end_with_parent()
        if os.getppid() != parent:
            os._exit(code)
        # Threads that others have started are not here.
        torch.set_num_threads(1)
        leave(observe, folder)
        code = 0
    except BaseException as error:
        with contextlib.suppress(Exception):
            (folder / SAID).write_text(f"{type(error).__name__}: {error}")
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class _Elsewhere(OperatorMode):  # type: ignore[no-untyped-call]
    """Notes where another thread begins to work on tensors."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        if not self.lines:
            self.lines.append(who_asks())
        return operator(*args, **kwargs)


@contextmanager
def in_own_thread(label: str) -> Iterator[None]:
    """With the work of a ThreadPoolExecutor done where it is submitted, as if it was always through before
    anyone asks. Threads that are started otherwise run as ever.

    Raises
    ------
    InputError: tensors that such a thread has worked on, which nobody has seen.
    """
    lines: list[str] = []
    own = threading.get_ident()
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def started(thread: threading.Thread) -> None:
        run = thread.run

        def watched() -> None:
            with _Elsewhere(lines):
                run()

        thread.run = watched  # type: ignore[method-assign]
        start(thread)

    def submitted(pool: Any, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if threading.get_ident() != own:
            return submit(pool, call, *args, **kwargs)
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    with patched((threading.Thread, "start", started), (ThreadPoolExecutor, "submit", submitted)):
        yield
    if lines:
        raise InputError(label, "", f"a thread that works on tensors {lines[0]}", ONE_THREAD)
