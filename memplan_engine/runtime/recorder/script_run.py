"""A whole script on fake tensors, in a process of its own: what it allocates up to its third training step.

`python -m memplan_engine.runtime.recorder.script_run FOLDER` runs it there: `request.json` in the folder says
which, and gets `run.json`, the observation, or `error.json` beside it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from itertools import islice
from multiprocessing import context as process
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.utils import data

from memplan_engine.calibration.kernel_table import Calibration
from memplan_engine.errors import InputError, one_line
from memplan_engine.formats.memplan_json.calibration_format import load_calibration, write_calibration
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.recorder.calibrated_ops import check_calibration
from memplan_engine.runtime.recorder.fake_device import Target, on_device, prepare, target_of
from memplan_engine.runtime.recorder.fake_run import observe_whole
from memplan_engine.runtime.recorder.op_recorder import recorder_on
from memplan_engine.runtime.recorder.own_process import SAID, answer, leave
from memplan_engine.runtime.recorder.saved_files import keeping_checkpoints
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.system import end_with_parent
from memplan_engine.torch_capture.torch_fake import STEP_RECORDED, patched
from memplan_engine.torch_capture.training.torch_generators import disturb
from memplan_engine.torch_capture.training.torch_origins import who_asks

MOST_STEPS = 3
"""Training steps that are recorded: the first makes what the optimizer keeps, the others are like those to
come."""
MOST_BATCHES = 4
"""Of each data loader, each time that it is gone through."""
SECONDS = 600.0
"""A script that has not come to its end by then is ended."""
CALIBRATION = "calibration.json"
Within = Callable[[dict[str, Any]], AbstractContextManager[Any]]
"""Makes of a request what is around its run."""
EXPECTED = "a script that trains or infers on its own, in one process"
RUNS = f"a script that runs as it is, {STEP_RECORDED}"


def observe_script(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    seconds: float = SECONDS,
    device: str = "cpu",
    arch: str | None = None,
    cards: int = 1,
    calibration: Calibration | None = None,
) -> Observation:
    """What the Python file `script` allocates, run as `python script arguments` on fake tensors, from its
    beginning to the end of its third training step (`TrainingSteps`), or to its own end.

    It runs in a process of its own, in the current folder; what it prints is dropped. Data loaders give four
    batches each time and load them in that process. Weights and what optimizers keep count as there before.
    With the device "cuda" the script finds `cards`, of the architecture `arch` (`fake_device`); figures are
    of what it puts there, on each.

    Raises
    ------
    InputError: no such file, device or architecture; a script that fails, forks, asks for a value that is not
        known, or is not through after `seconds`.
    MemplanError: a process that ends without an answer.
    """
    target = check_script(script, seconds, device, arch, cards=cards, calibration=calibration)
    name = Path(script).name
    with scratch_folder() as folder:
        process = start_script(script, arguments, target, folder, calibration=calibration)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise too_long(name, seconds) from None
        finally:
            end_script(process)
        seen = answer(folder, process.returncode, name)
    if not len(seen.ops):
        raise InputError(name, "", "a script that runs no operator of torch", "one that trains or infers")
    return seen


def check_script(
    script: str | Path,
    seconds: float,
    device: str,
    arch: str | None,
    *,
    cards: int = 1,
    calibration: Calibration | None = None,
) -> Target:
    """What `script` is to be predicted for, made ready; raises InputError as `observe_script`."""
    path = Path(script)
    if not path.is_file():
        raise InputError(str(script), "", "no such file", "a Python script")
    if not seconds > 0:
        raise InputError("--seconds", "", f"{seconds:g}", "more than 0")
    target = target_of(device, arch, path.name, cards)
    check_calibration(calibration, device, path.name)
    # No part of the script's time.
    prepare(target)
    return target


def start_script(
    script: str | Path,
    arguments: Sequence[str],
    target: Target,
    folder: Path,
    *,
    calibration: Calibration | None = None,
    module: str = __name__,
    **more: Any,
) -> subprocess.Popen[bytes]:
    """A process in which `main` of `module` does what the request in `folder` says, `more` included."""
    request = {"script": str(script), "arguments": list(arguments), "parent": os.getpid(), **asdict(target)}
    if calibration is not None:
        write_calibration(calibration, folder / CALIBRATION)
    (folder / "request.json").write_text(json.dumps({**request, **more}))
    return start_module(module, folder)


def start_module(module: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start `python -m module folder` in its own session, with stderr in the file SAID of `folder`."""
    command = [sys.executable, "-m", module, str(folder)]
    # A file, not a pipe, which would fill up and hold the process where nobody reads it meanwhile.
    with (folder / SAID).open("wb") as said:
        return subprocess.Popen(
            command,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )


def end_script(process: subprocess.Popen[bytes]) -> None:
    """End `process`, with whatever it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def too_long(name: str, seconds: float) -> InputError:
    """The error of a script that is not through in time."""
    found = f"a script that is not through after {seconds:g} s"
    return InputError(name, "", found, "one that ends, or more time (--seconds)")


def main(folder: Path, within: Within | None = None, expected: str = RUNS) -> None:
    """Run the script that `folder` asks for, and leave there what became of it; `within` makes of the request
    what is to be around the run."""
    request = json.loads((folder / "request.json").read_text())
    end_with_parent()
    if os.getppid() != request["parent"]:
        # It was gone before this process could ask to end with it.
        return
    script, home = request["script"], Path.cwd()
    given = folder / CALIBRATION
    calibration = load_calibration(given) if given.exists() else None

    def observe() -> Observation:
        target = Target(request["device"], request["arch"], request["cards"])
        with (
            on_device(target),
            _one_rank() if within is None else within(request),
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


def _run(script: str, home: Path, expected: str) -> Any:
    """Run the script as the main program; it may change the folder meanwhile. Return its variables, which
    hold its models to the end."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            last = (said.getvalue().strip().splitlines() or [""])[-1]
            found = f"a script that ends with {end.code!r}{last and f': {one_line(last, 300)}'}"
            raise InputError(Path(script).name, "", found, expected) from None
    except SyntaxError as error:
        place, found = f"line {error.lineno}" if error.lineno else "", f"SyntaxError: {error.msg}"
        raise InputError(Path(error.filename or script).name, place, found, "what Python can read") from None
    finally:
        os.chdir(home)


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
def _one_rank() -> Iterator[None]:
    """With process groups of several ranks refused, and models that are spread over ranks: those run
    otherwise."""
    distributed = torch.distributed
    if not distributed.is_available():
        yield
        return
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    start = distributed.init_process_group

    def refuse(what: str, instead: str) -> Callable[..., NoReturn]:
        def refused(*args: Any, **kwargs: Any) -> NoReturn:
            expected = f"{instead} `memplan devices SCRIPT --world N`, which runs the ranks"
            raise InputError(Path(sys.argv[0]).name, "", f"{what} {who_asks()}", expected)

        return refused

    def started(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("world_size") == 1:
            return start(*args, **kwargs)
        return refuse("a process group of several ranks, made", "one process, or")()

    sharded = "FullyShardedDataParallel (FSDP1), which no fake tensor follows,"
    with patched(
        (distributed, "init_process_group", started),
        (
            DistributedDataParallel,
            "__init__",
            refuse("DistributedDataParallel, made", "the model itself, or"),
        ),
        (FullyShardedDataParallel, "__init__", refuse(sharded, "fully_shard (FSDP2) and")),
    ):
        yield


@contextmanager
def loading_little() -> Iterator[None]:
    """With data loaders that work in this process, give MOST_BATCHES, and draw their order as ever: numbers
    that choose samples have values."""
    working: weakref.WeakSet[Any] = weakref.WeakSet()
    make, go_through, draw = data.DataLoader.__init__, data.DataLoader.__iter__, data.RandomSampler.__iter__

    def made(loader: Any, *args: Any, **kwargs: Any) -> None:
        options = {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None}
        own = {"multiprocessing_context": None, "pin_memory": False, "timeout": 0}
        if kwargs.get("num_workers") or any(args[5:6]):
            working.add(loader)
        # Places of the signature after the first five are given by name, in practice.
        make(loader, *args[:5], **{**kwargs, **options, **own})

    def gone_through(loader: Any) -> Any:
        batches = _really(lambda: go_through(loader))
        if loader in working:
            # What a data set draws in a worker it draws from a generator of the worker's.
            disturb()
        return _few(loader, batches)

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


def _few(loader: Any, batches: Any) -> Iterator[Any]:
    """Yield the first MOST_BATCHES of what `loader` gives; the recorder hears of it where there are more."""
    given = 0
    for batch in islice(batches, MOST_BATCHES):
        given += 1
        yield batch
    try:
        more = len(loader) > given
    except TypeError:
        # Without a length: it may have had more.
        more = given == MOST_BATCHES
    recorder = recorder_on()
    if more and recorder is not None:
        recorder.batches = MOST_BATCHES


def _really(call: Callable[[], Any]) -> Any:
    """What `call()` gives on real tensors."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), unset_fake_temporarily(), torch.no_grad():
        return call()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
