"""An order of ops as CSV: op,step."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.formats.csv_tables.csv_table import quoted, read_header, read_rows
from memplan_engine.system import write_atomically

COLUMNS = ("op", "step")


def write_csv_order(ops: Sequence[str], path: Path | str) -> None:
    """Write the names of `ops` with the steps at which they run, atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for step, name in enumerate(ops):
        if "\n" in name or "\r" in name:
            raise InputError(Path(path).name, f"op {name!r}", "a line break", "a name of one line: use .json")
        writer.writerow((name, step))
    write_atomically(path, text.getvalue().encode())


def steps_from_csv(text: str, source: str) -> dict[str, int]:
    """The step of each op of a table with the columns op and step; others are passed over.

    Raises
    ------
    InputError: a missing column, an op twice, a step that is no whole number, with the line.
    """
    header = read_header(source, text)
    if missing := [name for name in COLUMNS if name not in header.names]:
        found = f"no column {missing[0]!r}"
        raise InputError(source, f"line {header.line}", found, "the columns op and step")
    table = read_rows(header)
    steps: dict[str, int] = {}
    numbers = table.whole_numbers("step").tolist()
    for row, (name, step) in enumerate(zip(table.columns["op"], numbers, strict=True)):
        if name in steps:
            raise table.error(row, "field op", f"{quoted(name)} twice", "each op once")
        steps[name] = step
    return steps
