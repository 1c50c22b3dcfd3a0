"""MiniMalloc's program: a list of buffers in, offsets out. Its seconds are those of its whole process.

Standard library only: what this process holds when it starts the program counts as the program's memory.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.solvers.protocol import Request

_ELAPSED = re.compile(r"Elapsed time (\d+\.\d+)s")
_VERDICTS = ("NOT_FOUND", "DEADLINE_EXCEEDED")


@dataclass(frozen=True, slots=True)
class Said:
    """What the program gave: offsets in bytes or None, its `verdict` or what went wrong, its CPU and wall
    seconds, the `elapsed` ones of its search as it tells them, and its peak of memory."""

    offsets: list[int] | None
    verdict: str
    trouble: str
    cpu: float
    wall: float
    elapsed: float
    peak_bytes: int


def run(request: Request, capacity: int, seconds: float, *flags: str) -> Said:
    """Run it once; its peak of memory counts from what this small process holds."""
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "in.csv", Path(folder) / "out.csv"
        _write(request, given)
        command = [
            request.binary,
            f"--capacity={capacity}",
            f"--input={given}",
            f"--output={result}",
            f"--timeout={seconds}s",
            *flags,
        ]
        began = time.perf_counter()
        with (Path(folder) / "log").open("w+") as log:
            program = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(program.pid, 0)
            program.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            said = log.read()
        wall = time.perf_counter() - began
        offsets = _offsets(result) if result.exists() else None
    # Only what comes after the search is its verdict: a table that it cannot read is "NOT_FOUND", too.
    after = said.partition("Elapsed time")[2]
    verdict = next((word for word in _VERDICTS if word in after), "")
    trouble = "" if offsets is not None or verdict else _last_line(said, program.returncode)
    elapsed = _ELAPSED.search(said)
    return Said(
        offsets,
        verdict,
        trouble,
        used.ru_utime + used.ru_stime,
        wall,
        float(elapsed.group(1)) if elapsed else wall,
        used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    )


def _write(request: Request, path: Path) -> None:
    columns: dict[str, Sequence[int | str]] = {
        "id": range(len(request.size)),
        "lower": request.start,
        "upper": request.end,
        "size": request.size,
        "alignment": request.alignment,
    }
    if request.gaps:
        own: dict[int, list[str]] = {}
        for row, start, end, low, high in request.gaps:
            window = f"@{low}:{high}" if low < high else ""
            own.setdefault(row, []).append(f"{start}-{end}{window}")
        columns["gaps"] = [" ".join(own.get(row, ())) for row in range(len(request.size))]
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))


def _offsets(path: Path) -> list[int]:
    with path.open(newline="") as file:
        offsets = {int(row["id"]): int(row["offset"]) for row in csv.DictReader(file)}
    return [offsets[place] for place in range(len(offsets))]


def _last_line(said: str, code: int) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:100] if lines else f"exit code {code}"
