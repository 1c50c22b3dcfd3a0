"""The verb that opens the dashboard."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.errors import InputError


@app.command()
def dashboard(
    files: Annotated[list[Path] | None, typer.Argument(help="Files to open.", show_default=False)] = None,
    port: Annotated[
        int | None, typer.Option(help="Port on 127.0.0.1 (default: the first free one from 8501).")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Host name that a reverse proxy serves it under.", show_default=False
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder whose files can be opened on the Import page.", show_default=False
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open the dashboard in the browser."""
    for file in files or []:
        if not file.is_file() and not _has_ranks(file):
            found = "a folder of something else" if file.is_dir() else "no such file"
            expected = "a file to open, or a folder that `memplan devices -o` wrote"
            raise InputError(str(file), "", found, expected)
    if folder is not None and not folder.is_dir():
        raise InputError(str(folder), "", "no such folder", "a folder of files to open")
    arguments = [str(file.resolve()) for file in files or []]
    options = ([] if port is None else [f"--port={port}"]) + ([] if browser else ["--no-browser"])
    options += [f"--allow-host={name}" for name in allow_host or []]
    options += [] if folder is None else [f"--folder={folder.resolve()}"]
    # The engine does not import the dashboard: it is started as a program of its own. -P: a folder called
    # dashboard where one happens to be must not be taken for it.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "memplan_dashboard.launch", *options, *arguments])


def _has_ranks(folder: Path) -> bool:
    """Whether it is a folder of ranks, or of configurations."""
    # Not for who opens a file: they bring all formats.
    from memplan_engine.formats.memplan_json.ranks_folder import is_ranks
    from memplan_engine.formats.memplan_json.sweep_folder import is_sweep

    return is_ranks(folder) or is_sweep(folder)
