"""Printing: tables for people, JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from memplan_engine.files import check_target

WHOLE = 10_000
"""Letters in a line, more than any table has."""


def show(as_json: bool, machine: Callable[[], Any], people: Callable[[], Iterable[RenderableType]]) -> None:
    """Print what one of the two gives; the other is never worked out."""
    put(as_json_text(machine()) if as_json else as_text(people()))


def as_json_text(values: Any) -> str:
    """`values` as JSON."""
    return json.dumps(values, indent=2) + "\n"


def as_text(parts: Iterable[RenderableType], width: int | None = None) -> str:
    """Tables and lines as text; `width` in letters, that of the terminal unless given."""
    if width is None and not sys.stdout.isatty():
        # Into a pipe there is no width to fit: tables stay whole for grep.
        width = WHOLE
    # No words stand for pictures here: Rich need not load its list of them.
    console = Console(width=width, emoji=False)
    with console.capture() as captured:
        for part in _lines_apart(parts):
            # Lines of text stay whole: a terminal wraps them, a pipe must not.
            console.print(part, soft_wrap=isinstance(part, Text))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _lines_apart(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """`parts`, the titles and captions of tables as lines of their own: a narrow table would break them."""
    for part in parts:
        if isinstance(part, Group):
            yield from _lines_apart(part.renderables)
        elif isinstance(part, Table):
            title, caption, part.title, part.caption = part.title, part.caption, None, None
            yield from (each for each in (title, part, caption) if each)
        else:
            yield part


def put(text: str) -> None:
    """Print `text` as it stands."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # Who read the pipe has seen enough: no failure, and nothing left to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_targets(suffixes: tuple[str, ...], source: Path | None, *targets: Path | None) -> None:
    """Raise InputError, before long work, when one of the files to write could not be written; None is a file
    that nobody asked for, `source` the one that is read."""
    for target in targets:
        if target:
            check_target(target, suffixes, source)


def tell(message: str) -> None:
    """Print one line to stderr."""
    Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
