"""The verb that opens the dashboard."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.errors import InputError
from memplan_engine.history.store_place import FACTORIES, VARIABLE
from memplan_engine.torch_capture.factory_spec import parse_factory


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
    store: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Store of history for the page History, a file or postgresql://user@host/database "
            "(default: MEMPLAN_HISTORY, else .memplan/history.db in the repository).",
            show_default=False,
        ),
    ] = None,
    factory: Annotated[
        list[str] | None,
        typer.Option(
            help="package.module:factory or file.py:factory in this repository, with which the page History "
            "may run a bisection. Repeatable.",
            show_default=False,
        ),
    ] = None,
    all_interfaces: Annotated[
        bool,
        typer.Option(
            "--all-interfaces",
            help="Listen on all interfaces instead of 127.0.0.1, as a container has to: whoever reaches this "
            "machine under a name of --allow-host may use it.",
        ),
    ] = False,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open the dashboard in the browser."""
    _check(files or [], folder)
    arguments = [str(file.resolve()) for file in files or []]
    options = ([] if port is None else [f"--port={port}"]) + ([] if browser else ["--no-browser"])
    options += [f"--allow-host={name}" for name in allow_host or []]
    options += ["--all-interfaces"] if all_interfaces else []
    options += [] if folder is None else [f"--folder={folder.resolve()}"]
    # The server and what it starts hear of both so: a URL may hold a password, which others see in arguments.
    if store is not None:
        os.environ[VARIABLE] = store
    if factory:
        os.environ[FACTORIES] = "\n".join(str(parse_factory(each)) for each in factory)
    # The engine does not import the dashboard: it is started as a program of its own. -P: a folder called
    # dashboard where one happens to be must not be taken for it.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "memplan_dashboard.launch", *options, *arguments])


def _check(files: list[Path], folder: Path | None) -> None:
    """Raise InputError for what cannot be opened."""
    for file in files:
        if not file.is_file() and not _has_ranks(file):
            found = "a folder of something else" if file.is_dir() else "no such file"
            expected = "a file to open, or a folder that `memplan devices -o` wrote"
            raise InputError(str(file), "", found, expected)
    if folder is not None and not folder.is_dir():
        raise InputError(str(folder), "", "no such folder", "a folder of files to open")


def _has_ranks(folder: Path) -> bool:
    """Whether it is a folder of ranks, or of configurations."""
    # Not for who opens a file: they bring all formats.
    from memplan_engine.formats.memplan_json.ranks_folder import is_ranks
    from memplan_engine.formats.memplan_json.sweep_folder import is_sweep

    return is_ranks(folder) or is_sweep(folder)
