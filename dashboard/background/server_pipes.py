"""The side of a process that works for the dashboard's server: what comes in, where answers go, when it ends.
Never imports Streamlit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

from memplan_dashboard.background.solver_messages import read_message, write_message

from memplan_engine.problem import Ints
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.system import end_with_parent

NICENESS = 5
"""Pages come first: a search takes what the server leaves."""


def open_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Make this process one that works for a server and ends with it: what comes in, and where answers go."""
    end_with_parent()
    # Ctrl-C in a terminal reaches every process of the group: the server decides, and closes our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    commands = sys.stdin.buffer
    # Only messages may go out: what anybody prints goes where errors go.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return commands, answers


def first_message(commands: BinaryIO) -> tuple[dict[str, Any], dict[str, Ints]]:
    """What a search is asked, which gives way to pages from now on; ends the process where nothing comes."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    try:
        return read_message(commands)
    except EOFError:
        sys.exit()


def stop_when_asked(commands: BinaryIO, limits: SolveLimits) -> None:
    """Cancel when asked to; end the process when the other side has gone, whatever the search does."""
    try:
        while True:
            read_message(commands)
            limits.cancel()
    except EOFError:
        os._exit(0)


def send(answers: BinaryIO, values: Mapping[str, Any], arrays: Mapping[str, Ints] | None = None) -> None:
    """Write a message; when nobody reads any more, there is nothing left to do here."""
    try:
        write_message(answers, values, arrays)
    except OSError:
        os._exit(0)
