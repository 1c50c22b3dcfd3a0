"""`memplan`: the verbs. Exit 0 fine, 1 a check failed, 2 bad input or usage."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import typer

from memplan_engine import compiling

# In the order in which the help lists their verbs.
from memplan_engine.cli import planning  # isort: split

from memplan_engine.cli import graphs  # isort: split

from memplan_engine.cli import symbols  # isort: split

from memplan_engine.cli import capturing  # isort: split

from memplan_engine.cli import serving
from memplan_engine.cli.app import app
from memplan_engine.errors import MemplanError, one_line

__all__ = ["app", "capturing", "graphs", "main", "planning", "serving", "symbols"]

USAGE: type[BaseException] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""The root of all that Typer raises when a command line cannot be understood; it has no public name."""


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
        sys.exit(app(prog_name="memplan", standalone_mode=False) or 0)
    except USAGE as error:
        _explain(error)
    except MemplanError as error:
        print(f"memplan: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"memplan: cannot write: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


def _explain(error: Any) -> None:
    """Wrong usage in one line, but for a call without a verb, which wants the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        print(f"memplan: {one_line(error.format_message(), 300)} (see --help)", file=sys.stderr)
    sys.exit(2)
