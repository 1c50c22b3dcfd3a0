"""A predicted run in a process that is thrown away after it: what believes in a card goes on doing so.

It is forked: a model that is there already cannot be sent in general.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.formats.memplan_json.observation_file import load_observation, write_observation
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.system import end_with_parent

RUN, ERROR, SAID = "run.json", "error.json", "said.txt"
PARTS = ("source", "place", "found", "expected")


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


def leave(observe: Callable[[], Observation], folder: Path) -> None:
    """Write to `folder` what `observe()` gives, or its InputError, for `answer` to read."""
    try:
        write_observation(observe(), folder / RUN)
    except InputError as error:
        half = folder / "half.json"
        half.write_text(json.dumps({name: getattr(error, name) for name in PARTS}))
        half.rename(folder / ERROR)


def answer(folder: Path, code: int, name: str) -> Observation:
    """What a process left in `folder` that ended with `code`; SAID there has what it wrote on stderr.

    Raises
    ------
    InputError: the one that it left. MemplanError: it left nothing.
    """
    wrong = folder / ERROR
    if wrong.exists():
        raise InputError(**json.loads(wrong.read_text()))
    if not (folder / RUN).exists():
        said = folder / SAID
        text = said.read_text(errors="replace") if said.exists() else ""
        last = (text.strip().splitlines() or ["no message"])[-1]
        raise MemplanError(f"{name}: the process ended with code {code}: {last}")
    return load_observation(folder / RUN)
