"""Runs → memplan JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.system.write_atomically import write_atomically

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.run_format import RunFile


def write_run(run: RunFile, path: Path | str) -> None:
    """Write `run` as memplan JSON, atomically; `load_run` reads it back.

    Raises
    ------
    InputError: a place that cannot be written, names that are no valid text.
    """
    write_atomically(path, run_bytes(run))


def run_bytes(run: RunFile) -> bytes:
    """`run` as memplan JSON in UTF-8, with one line break at the end."""
    from memplan_engine.formats.memplan_json.json_base import render

    return render(run, run.name)
