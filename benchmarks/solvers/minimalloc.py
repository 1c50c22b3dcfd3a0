"""MiniMalloc's program: a list of buffers in, offsets out. Its CPU seconds are those of its whole process."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.solvers.protocol import Answer, Request


def solve(request: Request) -> Answer:
    """Offsets within the capacity; its peak memory counts from what this small process holds."""
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "in.csv", Path(folder) / "out.csv"
        with given.open("w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(("id", "lower", "upper", "size"))
            table.writerows(
                zip(range(len(request.size)), request.start, request.end, request.size, strict=True)
            )
        command = [
            request.binary,
            f"--capacity={request.capacity}",
            f"--input={given}",
            f"--output={result}",
            f"--timeout={request.seconds}s",
        ]
        with (Path(folder) / "log").open("w+") as log:
            program = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(program.pid, 0)
            program.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            said = log.read()
        peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        cpu = used.ru_utime + used.ru_stime
        if result.exists():
            with result.open(newline="") as file:
                offsets = {int(row["id"]): int(row["offset"]) for row in csv.DictReader(file)}
            return Answer([offsets[place] for place in range(len(offsets))], cpu=cpu, peak_bytes=peak)
    # Only what comes after the search is its verdict: a table that it cannot read is "NOT_FOUND", too.
    verdict = said.partition("Elapsed time")[2]
    decided = "NOT_FOUND" in verdict or "DEADLINE_EXCEEDED" in verdict
    trouble = "" if decided else _last_line(said, program.returncode)
    return Answer(denied="NOT_FOUND" in verdict, cpu=cpu, peak_bytes=peak, trouble=trouble)


def _last_line(said: str, code: int) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:100] if lines else f"exit code {code}"
