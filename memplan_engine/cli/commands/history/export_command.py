"""`memplan history export`: the whole store in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.history_options import STORE, opened_to_read
from memplan_engine.cli.output import put
from memplan_engine.units import count_of, format_bytes

FILE = Annotated[Path, typer.Argument(help="The file to write, a store itself", show_default=False)]


@app.command(name="history export")
def export(file: FILE, store: STORE = None) -> None:
    """Write the whole store into one file, which is a store itself.

    `memplan history import` adds what is in it to another one.
    """
    with opened_to_read(store) as history:
        history.export(file)
        points, graphs = history.counts()
    told = f"{count_of(points, 'point')}, {count_of(graphs, 'graph')}, {format_bytes(file.stat().st_size)}"
    put(f"{file}: {told}\n")
