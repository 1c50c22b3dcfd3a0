"""The process of a script on fake tensors: what it allocates up to its third training step."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from multiprocessing import context as process
from pathlib import Path
from typing import Any, NoReturn

import torch

# Every run asks for it, and it takes longer to import than a small script to run.
import torch._dynamo
from torch.utils import data

from memplan_engine.errors import InputError, one_line
from memplan_engine.formats.memplan_json.calibration_format import load_calibration
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.process_answer import leave
from memplan_engine.runtime.recorder.fake_device import on_device, prepare
from memplan_engine.runtime.recorder.fake_run import observe_whole
from memplan_engine.runtime.recorder.op_recorder import Enough
from memplan_engine.runtime.scripts.saved_files import keeping_checkpoints
from memplan_engine.runtime.scripts.script_run import CALIBRATION, MOST_STEPS, REQUEST, RUNS
from memplan_engine.runtime.target import Target
from memplan_engine.torch_capture.torch_fake import patched
from memplan_engine.torch_capture.torch_source import located
from memplan_engine.torch_capture.training.torch_origins import who_asks

MOST_BATCHES = 4
"""Of each data loader, each time that it is gone through."""
EXPECTED = "a script that trains or infers on its own, in one process"


def main(folder: Path) -> None:
    """Run the script that `folder` asks for, and leave there what became of it."""
    run_script(read_request(folder), folder, nullcontext())


def read_request(folder: Path) -> dict[str, Any]:
    """What `folder` asks for, as `start_script` has left it."""
    said: dict[str, Any] = json.loads((folder / REQUEST).read_text())
    return said


def run_script(
    request: dict[str, Any], folder: Path, within: AbstractContextManager[Any], expected: str = RUNS
) -> None:
    """Run the script of `request` and leave in `folder` what became of it; `within` is around the run. Where
    no script is named, what its device takes is made ready, for runs to come."""
    target = Target(request["device"], request["arch"], request["cards"])
    script, home = request["script"], Path.cwd()
    if script is None:
        prepare(target)
        return
    given = folder / CALIBRATION
    calibration = load_calibration(given) if given.exists() else None

    def observe() -> Observation:
        with (
            on_device(target),
            within,
            as_script(script, request["arguments"]),
            alone(),
            loading_little(),
            keeping_checkpoints(),
        ):
            return observe_whole(
                lambda: _run(script, home, expected),
                Path(script).name,
                expected,
                most_steps=MOST_STEPS,
                calibration=calibration,
            )

    leave(observe, folder)


def _run(script: str, home: Path, expected: str) -> None:
    """The script as the main program; it may change the folder meanwhile."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            last = (said.getvalue().strip().splitlines() or [""])[-1]
            found = f"a script that ends with {end.code!r}{last and f': {one_line(last, 300)}'}"
            raise InputError(Path(script).name, "", found, expected) from None
    except BaseExceptionGroup as group:
        if group.subgroup(Enough) is not None:
            # Tasks of asyncio come to their end in a group.
            raise Enough from None
        ours = group.subgroup(InputError)
        if ours is not None:
            raise next(each for each in _parts_of(ours) if isinstance(each, InputError)) from None
        raise _ended_by(group, script, expected) from None
    except (KeyboardInterrupt, GeneratorExit) as error:
        raise _ended_by(error, script, expected) from None
    except SyntaxError as error:
        place, found = f"line {error.lineno}" if error.lineno else "", f"SyntaxError: {error.msg}"
        raise InputError(Path(error.filename or script).name, place, found, "what Python can read") from None
    finally:
        os.chdir(home)


def _ended_by(error: BaseException, script: str, expected: str) -> InputError:
    """In the words that other errors have, of each that is in a group."""
    words = "; ".join(f"{type(each).__name__}: {each}".removesuffix(": ") for each in _parts_of(error))
    return InputError(Path(script).name, "fake run", located(words, error), expected)


def _parts_of(error: BaseException) -> Iterator[BaseException]:
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _parts_of(each)


@contextmanager
def as_script(script: str, arguments: Sequence[str]) -> Iterator[None]:
    """With the arguments and the path that Python gives a script."""
    before = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


@contextmanager
def alone() -> Iterator[None]:
    """With every way to become two processes refused: what runs in another one nobody records."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise InputError(Path(sys.argv[0]).name, "", f"a process that is forked {who_asks()}", EXPECTED)

    def refuse_start(*args: Any, **kwargs: Any) -> NoReturn:
        raise InputError(Path(sys.argv[0]).name, "", f"a process that is started {who_asks()}", EXPECTED)

    ways = [(os, name, refuse) for name in ("fork", "forkpty") if hasattr(os, name)]
    # Those of `spawn` do not fork. Other programs (subprocess: git, say) are no part of what is trained.
    kinds = [getattr(process, name, None) for name in ("SpawnProcess", "ForkServerProcess")]
    started = [(kind, "_Popen", staticmethod(refuse_start)) for kind in kinds if kind is not None]
    with patched(*ways, *started):
        yield


@contextmanager
def loading_little() -> Iterator[None]:
    """With data loaders that work in this process, give MOST_BATCHES, and draw their order as ever: numbers
    that choose samples have values."""
    make, go_through, draw = data.DataLoader.__init__, data.DataLoader.__iter__, data.RandomSampler.__iter__

    def made(loader: Any, *args: Any, **kwargs: Any) -> None:
        options = {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None}
        own = {"multiprocessing_context": None, "pin_memory": False, "timeout": 0}
        # Places of the signature after the first five are given by name, in practice.
        make(loader, *args[:5], **{**kwargs, **options, **own})

    def gone_through(loader: Any) -> Any:
        _cut.append(_has_more(loader))
        return islice(_really(lambda: go_through(loader)), MOST_BATCHES)

    def drawn(sampler: Any) -> Iterator[int]:
        # One by one: a data set may be endless in practice.
        order = _really(lambda: draw(sampler))
        for _ in range(len(sampler)):
            yield _really(lambda: next(order))

    with patched(
        (data.DataLoader, "__init__", made),
        (data.DataLoader, "__iter__", gone_through),
        (data.RandomSampler, "__iter__", drawn),
    ):
        yield


_cut: list[bool] = []
"""Of each time that a data loader of this process was gone through, whether it had more than it gave."""


def loaders_were_cut() -> bool:
    """Whether any had."""
    return any(_cut)


def _has_more(loader: Any) -> bool:
    try:
        return bool(_really(lambda: len(loader)) > MOST_BATCHES)
    except Exception:
        # Of a stream nobody knows, and lengths are the user's code.
        return True


def _really(call: Callable[[], Any]) -> Any:
    """What `call()` gives on real tensors."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), unset_fake_temporarily(), torch.no_grad():
        return call()
