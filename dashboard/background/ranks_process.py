"""Ranks of the built-in Llama in a process of its own: reads what is asked, tells of each rank, gives a zip.

Started as `python -m memplan_dashboard.background.ranks_process` by `ranks_job`. It runs one script, that of
`memplan_examples`, with arguments that it makes itself: what people upload is never run. Never imports
Streamlit.
"""

from __future__ import annotations

import base64
import logging
import os
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from memplan_dashboard.background.ranks_job import RanksAsked
from memplan_dashboard.background.server_pipes import first_message, open_pipes, send

from memplan_engine.errors import MemplanError
from memplan_engine.formats.memplan_json.ranks_archive import write_ranks_archive


def run_ranks(asked: RanksAsked, tell: Callable[[str], None]) -> bytes:
    """A zip of the ranks that differ; raises MemplanError."""
    arguments = asked.arguments
    tell("loading torch")
    from memplan_engine.torch_capture.torch_fake import look_for_torch

    look_for_torch("running ranks")
    import memplan_examples

    from memplan_engine.runtime.ranks.rank_runs import observe_ranks

    script = Path(memplan_examples.__path__[0]) / "llama_ranks.py"
    runs = observe_ranks(script, arguments, world_size=asked.world, device="cuda", tell=tell)
    with tempfile.TemporaryDirectory(prefix="memplan-") as folder:
        path = Path(folder) / "ranks.zip"
        write_ranks_archive(runs, path)
        return path.read_bytes()


def _end_with(commands: BinaryIO) -> None:
    """When the input ends, whoever asks is gone; ranks that run end with this process."""
    commands.read(1)
    os._exit(0)


def main() -> None:
    """Run what comes in."""
    commands, answers = open_pipes()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    asked, _ = first_message(commands)
    threading.Thread(target=_end_with, args=(commands,), daemon=True).start()
    try:
        archive = run_ranks(
            RanksAsked(**asked), lambda part: send(answers, {"kind": "progress", "part": part})
        )
        send(answers, {"kind": "done", "archive": base64.b64encode(archive).decode()})
    except MemplanError as error:
        send(answers, {"kind": "error", "message": str(error)})
    # Not through the interpreter's end: a thread still waits for input.
    os._exit(0)


if __name__ == "__main__":
    main()
