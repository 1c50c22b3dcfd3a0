"""A whole script on fake tensors, in a process of its own: what it allocates up to its third training step.
Known without torch, which that process imports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memplan_engine.calibration.kernel_table import Calibration
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.calibration_format import write_calibration
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.process_answer import SAID, answer, no_answer
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.runtime.scripts.host import ScriptRun, start_run
from memplan_engine.runtime.target import Target, check_calibration, target_of
from memplan_engine.torch_capture.torch_fake import STEP_RECORDED

PROCESS = "memplan_engine.runtime.scripts.script_process"
"""The module that is the process of a script."""
REQUEST, CALIBRATION = "request.json", "calibration.json"
"""What a process is asked for, in its folder."""
MOST_STEPS = 3
"""Training steps that are recorded: the first makes what the optimizer keeps, the others are like those to
come."""
SECONDS = 600.0
"""A script that has not come to its end by then is ended."""
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
    beginning to the end of its third training step, or to its own end.

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
    make_ready(target, name)
    with scratch_folder() as folder:
        run = start_script(script, arguments, target, folder, calibration=calibration)
        try:
            code = run.wait(seconds)
        finally:
            run.end()
        if code is None:
            raise too_long(name, seconds)
        seen = answer(folder, code, name)
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
    """What `script` is to be predicted for; raises InputError as `observe_script`."""
    path = Path(script)
    if not path.is_file():
        raise InputError(str(script), "", "no such file", "a Python script")
    if not seconds > 0:
        raise InputError("--seconds", "", f"{seconds:g}", "more than 0")
    target = target_of(device, arch, path.name, cards)
    check_calibration(calibration, device, path.name)
    return target


def make_ready(target: Target, name: str, module: str = PROCESS) -> None:
    """Have built what processes of `module` take on this machine to believe in `target`, once and for all: no
    part of the time of the script `name`.

    Raises
    ------
    MemplanError: a process that cannot import what it takes.
    """
    if target.device == "cpu":
        return
    with scratch_folder() as folder:
        run = _start({"script": None, **asdict(target)}, folder, module, name)
        try:
            code = run.wait()
        finally:
            run.end()
        if code != 0:
            assert code is not None
            raise no_answer(folder, code, name)


def start_script(
    script: str | Path,
    arguments: Sequence[str],
    target: Target,
    folder: Path,
    *,
    calibration: Calibration | None = None,
    module: str = PROCESS,
    **more: Any,
) -> ScriptRun:
    """A process in which `main` of `module` does what the request in `folder` says, `more` included.

    Raises
    ------
    MemplanError: `module` cannot be imported.
    """
    if calibration is not None:
        write_calibration(calibration, folder / CALIBRATION)
    request = {"script": str(script), "arguments": list(arguments), **asdict(target), **more}
    return _start(request, folder, module, Path(script).name)


def _start(request: dict[str, Any], folder: Path, module: str, name: str) -> ScriptRun:
    (folder / REQUEST).write_text(json.dumps(request))
    return start_run(module, folder, folder / SAID, name)


def too_long(name: str, seconds: float) -> InputError:
    """The error of a script that is not through in time."""
    found = f"a script that is not through after {seconds:g} s"
    return InputError(name, "", found, "one that ends, or more time (--seconds)")
