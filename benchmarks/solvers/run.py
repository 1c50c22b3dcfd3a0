"""A solver in a child process, within its limits of time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.solvers.catalogue import Solver
from benchmarks.solvers.protocol import Answer, Request

ROOT = Path(__file__).resolve().parents[2]
GRACE = 30.0
"""Seconds beyond twice its own limit after which a solver that pays no heed to it is ended."""


def ask(solver: Solver, request: Request) -> Answer:
    """The answer, or an Answer with nothing but `trouble` when there is none."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "request.json", Path(folder) / "answer.json"]
        files[0].write_text(json.dumps(asdict(request)))
        command = [sys.executable, "-m", "benchmarks.solvers.child", solver.module, *map(str, files)]
        # A session of its own: whatever the child has started ends with it.
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, complaint = child.communicate(timeout=2 * request.seconds + GRACE)
        except subprocess.TimeoutExpired:
            return Answer(trouble="pays no heed to its time limit")
        finally:
            _end(child)
        if not files[1].exists():
            last = complaint.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
            return Answer(trouble=last[0][:100])
        return Answer(**json.loads(files[1].read_text()))


def _end(child: subprocess.Popen[str]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.wait()
