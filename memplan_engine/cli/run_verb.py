"""Running a command line: errors become one line each."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.exit_codes import INTERRUPTED
from memplan_engine.errors import MemplanError, one_line
from memplan_engine.kernels import on_first_compilation

USAGE: type[BaseException] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""The root of all that Typer raises when a command line cannot be understood; it has no public name."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`, and give its exit code; raises KeyboardInterrupt after Ctrl-C."""
    on_first_compilation(
        lambda: print(
            "memplan: compiling kernels that no command needed before; later runs take them from the cache",
            file=sys.stderr,
        )
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal has no letters for is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(args=list(arguments), prog_name="memplan", standalone_mode=False) or 0
        sys.stdout.flush()
    except USAGE as error:
        return _explain(error)
    except MemplanError as error:
        print(f"memplan: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"memplan: cannot write: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    if code == INTERRUPTED:
        # What Typer makes of a KeyboardInterrupt.
        raise KeyboardInterrupt
    return int(code)


def _explain(error: Any) -> int:
    """Wrong usage in one line, but for a call without a verb, which wants the help; the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        print(f"memplan: {one_line(error.format_message(), 300)} (see --help)", file=sys.stderr)
    return 2
