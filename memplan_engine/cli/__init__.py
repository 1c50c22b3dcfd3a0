"""`memplan`: the verbs. Exit 0 fine, 1 a check failed, 2 bad input or usage."""

from __future__ import annotations

import io
import os
import sys

from memplan_engine import compiling
from memplan_engine.cli import capturing, graphs, planning, serving, symbols
from memplan_engine.cli.app import app
from memplan_engine.errors import MemplanError

__all__ = ["app", "capturing", "graphs", "main", "planning", "serving", "symbols"]


def main() -> None:
    """Run the CLI; a MemplanError becomes one line on stderr and exit code 2."""
    compiling.on_first_compilation(
        lambda: print(
            "memplan: compiling kernels, once; the next run takes them from the cache", file=sys.stderr
        )
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal has no letters for is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="memplan")
    except MemplanError as error:
        print(f"memplan: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"memplan: cannot write: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
