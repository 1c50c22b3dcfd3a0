"""A run of a built-in model in a process of its own: reads what is asked, tells of each part, gives the run.

Started as `python -m memplan_dashboard.background.run_process` by `run_job`, or by `spare` before anybody
asks for a run: what every run needs is loaded first. It builds nothing but the models of
`memplan_examples.small`, by name: what people upload is never run. Never imports Streamlit.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from memplan_dashboard.background.server_pipes import open_pipes
from memplan_dashboard.background.solver_messages import read_message, write_message
from memplan_examples.small import MODELS

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.formats.memplan_json.run_files import run_bytes
from memplan_engine.planner import make_plan
from memplan_engine.strategies.base import SolveLimits

PLAN_SECONDS = 10.0
"""How long a strategy may look for the plan."""
MOST_BYTES = 1 << 30
"""Of memory before anybody asks for a run; it is about 0.4 GiB. With more it ends instead of waiting."""


def run_model(asked: dict[str, Any], tell: Any) -> bytes:
    """The run that is asked for, as a file of memplan/run has it; raises MemplanError."""
    build = MODELS.get(asked["model"])
    if build is None:
        raise InputError("run", "model", repr(asked["model"]), f"one of {', '.join(MODELS)}")
    tell("loading torch")
    from memplan_engine.torch_capture.torch_fake import require_torch

    require_torch("running a model")
    import torch

    from memplan_engine.runtime.loading import run_target
    from memplan_engine.runtime.trial.ordered_target import ordered_target
    from memplan_engine.runtime.trial.run_in_plan import run_in_plan
    from memplan_engine.torch_capture.training.torch_step import SEED

    tell("building the model")
    torch.manual_seed(SEED)
    try:
        model, inputs = build()
    except ImportError as error:
        found = f"{asked['model']} needs transformers, which is not installed"
        raise MemplanError(f"{found}: pip install 'memplan[examples]'") from error
    tell("exporting the model")
    subject = run_target(model, (), inputs, functional=asked["functional"], name=asked["model"])
    order = None
    if asked["order"]:
        tell("ordering the ops")
        subject, order = ordered_target(subject)
    tell("planning")
    plan = make_plan(subject.program.graph, asked["strategy"], limits=SolveLimits(PLAN_SECONDS))
    how = {key: asked[key] for key in ("policy", "check", "profile")}
    return run_bytes(run_in_plan(subject, plan, **how, tell=tell).ordered(order).run)


def get_ready(is_asked: Callable[[], bool]) -> None:
    """Load what every run needs, torch with all that a run makes it load; and, unless somebody waits for a
    run already, transformers where it is there."""
    first = {"model": "perceptron", "strategy": "naive", "policy": "native"}
    with suppress(MemplanError):
        nothing = dict.fromkeys(("functional", "check", "profile", "order"), False)
        run_model(first | nothing, lambda part: None)
    if is_asked():
        return
    with suppress(ImportError):
        MODELS["gpt2"]()


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def _listen(commands: BinaryIO, questions: SimpleQueue[dict[str, Any]]) -> None:
    """Take the one question that comes. When the input ends, whoever asks is gone."""
    with suppress(EOFError):
        questions.put(read_message(commands)[0])
        commands.read(1)
    os._exit(0)


def main() -> None:
    """Run what comes in."""
    commands, answers = open_pipes()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    questions: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_listen, args=(commands, questions), daemon=True).start()
    write_message(answers, {"kind": "progress", "part": "loading torch"})
    get_ready(lambda: not questions.empty())
    if questions.empty() and _resident_bytes() > MOST_BYTES:
        os._exit(0)
    asked = questions.get()
    try:
        done = run_model(asked, lambda part: write_message(answers, {"kind": "progress", "part": part}))
        write_message(answers, {"kind": "done", "run": done.decode()})
    except MemplanError as error:
        write_message(answers, {"kind": "error", "message": str(error)})
    except OSError:
        # Nobody reads any more.
        os._exit(0)
    # Not through the interpreter's end: a thread still waits for input.
    os._exit(0)


if __name__ == "__main__":
    main()
