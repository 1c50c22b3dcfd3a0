"""A factory that is captured in a process of its own, as one folder has it. Known without torch, which that
process imports: once, whatever is captured afterwards."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.runtime.process_answer import SAID, check_answer
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.runtime.scripts.host import start_run

PROCESS = "memplan_engine.runtime.scripts.factory_process"
"""The module that is the process of a factory."""
REQUEST, GRAPH = "request.json", "graph.json"
WATCH_SECONDS = 0.1
"""Between two looks at whether it is to stop."""


@dataclass(frozen=True, slots=True)
class FactoryRequest:
    """A `factory`, "package.module:function" or "file.py:function", in the folder `top`, where it is
    captured: lines of source are relative to that. Modules are looked for in `places`, folders in `top`,
    first.

    `training` is "step" or "joint", "" for inference; `options` are those of `capture_factory` or
    `capture_training_factory`. Where `elsewhere` names a folder, the model must be made of files in `top`,
    other than those that were `given`, and of none in that folder.
    """

    factory: str
    top: Path
    places: tuple[str, ...] = ("",)
    training: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    elsewhere: Path | None = None
    given: tuple[str, ...] = ()


def capture_apart(request: FactoryRequest, seconds: float, stop: threading.Event | None = None) -> bytes:
    """The graph of the factory of `request` as memplan JSON, from a process of its own, which ends when
    `stop` is set.

    Raises
    ------
    InputError: a factory that fails, or is made of other files; one that takes more than `seconds`.
    MemplanError: a process that ends without an answer, or is stopped.
    """
    name = f"factory {request.factory}"
    with scratch_folder() as folder:
        (folder / REQUEST).write_text(json.dumps(_as_json(request)))
        run = start_run(PROCESS, folder, folder / SAID, name)
        until = time.monotonic() + seconds
        try:
            while (code := run.wait(WATCH_SECONDS)) is None and time.monotonic() < until:
                if stop is not None and stop.is_set():
                    raise MemplanError(f"{name}: stopped")
        finally:
            run.end()
        if code is None:
            raise InputError(name, "", f"a capture that takes more than {seconds:g} s", "less")
        return check_answer(folder / GRAPH, code, name).read_bytes()


def _as_json(request: FactoryRequest) -> dict[str, Any]:
    return {
        "factory": request.factory,
        "top": str(request.top),
        "places": list(request.places),
        "training": request.training,
        "options": dict(request.options),
        "elsewhere": request.elsewhere and str(request.elsewhere),
        "given": list(request.given),
    }
