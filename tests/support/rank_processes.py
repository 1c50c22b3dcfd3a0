"""Ranks as processes of a file of `tests/support`, each of which writes what it has seen to a file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run_ranks(
    file: str, shared: str, script: Path, world: int, arguments: Sequence[str], folder: str, seconds: float
) -> list[list[tuple[str, int]]]:
    """Of each rank what `file RANK WORLD SHARED OUT SCRIPT ARGUMENTS …` writes to OUT, in `folder`."""
    outs = [Path(folder) / f"{rank}.out" for rank in range(world)]
    processes = [
        subprocess.Popen(
            [sys.executable, file, str(rank), str(world), shared, str(out), str(script), *arguments],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    try:
        said = [process.communicate(timeout=seconds)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), "\n".join(said)[-4000:]
    return [[tuple(row) for row in json.loads(out.read_text())] for out in outs]
