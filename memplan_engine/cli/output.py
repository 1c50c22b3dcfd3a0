"""Printing: tables for people, JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text


def show(as_json: bool, machine: Callable[[], Any], people: Callable[[], Iterable[RenderableType]]) -> None:
    """Print what one of the two gives; the other is never worked out."""
    if as_json:
        text = json.dumps(machine(), indent=2) + "\n"
    else:
        # Into a pipe there is no width to fit: tables stay whole for grep.
        console = Console() if sys.stdout.isatty() else Console(width=200)
        with console.capture() as captured:
            for part in people():
                # Lines of text stay whole: a terminal wraps them, a pipe must not.
                console.print(part, soft_wrap=isinstance(part, Text))
        text = "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # Who read the pipe has seen enough: no failure, and nothing left to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(message: str) -> None:
    """Print one line to stderr."""
    Console(stderr=True).print(message, markup=False, highlight=False)
