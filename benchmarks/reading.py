"""Time the reading and refusing of files and the matching of large lists against plain Python.

    python benchmarks/reading.py [--runs N] [--bombs [--megabytes M]]

Each row is CPU time in this process, the median of N runs after one that imports and compiles, next to a
reference on the same data: `csv.reader` or `json.loads` for a list that is read, reading and decoding the
bytes for a file that is refused. With --bombs each of the files in `tests/support/bombs.py` is read in
a separate process; the reference is a process that passes as long a list of zeros to `json.loads`.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from memplan_engine import MemplanError, load, make_plan, make_problem, to_problem  # noqa: E402
from memplan_engine.diffing.matching import match_buffers  # noqa: E402
from memplan_engine.files import write  # noqa: E402
from memplan_engine.problem import Problem  # noqa: E402
from memplan_engine.symbolic import resolve, sweep  # noqa: E402
from tests.support.bombs import BOMBS  # noqa: E402
from tests.support.processes import PEAK_KIB  # noqa: E402
from tests.support.symbolic_graphs import gpt2  # noqa: E402

BUFFERS = 200_000
NAMES = 250_000
GARBAGE: dict[str, Callable[[int], bytes]] = {
    "random.csv": lambda n: Random(1).randbytes(n),
    "random.json": lambda n: Random(1).randbytes(n),
    "letters.csv": lambda n: b"a" * n,
    "braces.json": lambda n: b"{" * n,
    "commas.csv": lambda n: b"id,lower,upper,size\n" + b"," * n,
    "rows.csv": lambda n: b"id,lower,upper,size\n" + b"x\n" * (n // 2),
    "number.csv": lambda n: b"id,lower,upper,size\na,0,1," + b"9" * n,
    "fields.onnx": lambda n: b"\x08\x08" * (n // 2),
    "zeros.pt2": bytes,
}
READ = f"""{PEAK_KIB}
import contextlib, json, sys
from memplan_engine import MemplanError, load
with contextlib.suppress(MemplanError):
    load(sys.argv[2]) if sys.argv[1] == "load" else json.loads(open(sys.argv[2], "rb").read())
print(peak_kib() / 1000)
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: `work` against `reference`."""

    name: str
    work: Callable[[], object]
    reference: Callable[[], object]


def numbered_list() -> Problem:
    """Return buffers that live 17 steps, one made at each step."""
    start = np.arange(BUFFERS)
    return make_problem(start, start + 17, 64 * (start % 1000 + 1), alignment=64, name="list")


def renumbered(count: int) -> tuple[Problem, Problem]:
    """Return two lists of buffers whose names differ in numbers; the second lacks the first three buffers."""
    start = np.arange(count)

    def many(first: int) -> Problem:
        steps = start[first:]
        names = [f"t_{i}" for i in range(len(steps))]
        return make_problem(steps, steps + 1 + steps * 7919 % 13, np.full(len(steps), 64), names=names)

    return many(0), many(3)


def read_rows(path: Path) -> list[list[str]]:
    """Return the rows as Python's own reader gives them."""
    with path.open(newline="") as file:
        return list(csv.reader(file))


def refused(path: Path) -> None:
    """Read a file that holds nothing to plan."""
    with contextlib.suppress(MemplanError):
        load(path)
        raise AssertionError(f"{path.name} was read")


def rows(folder: Path, megabytes: int) -> list[Row]:
    """Return the rows of the first table; their files are in `folder`."""
    made, graph = numbered_list(), gpt2()
    as_csv, as_json = folder / "list.csv", folder / "list.json"
    write(made, as_csv)
    write(made, as_json)
    base, head = renumbered(NAMES)
    found = [
        Row(f"{BUFFERS:,} buffers as CSV", lambda: load(as_csv), lambda: read_rows(as_csv)),
        Row(f"{BUFFERS:,} buffers as JSON", lambda: load(as_json), lambda: json.loads(as_json.read_text())),
        Row(
            f"match {NAMES:,} renumbered names",
            lambda: match_buffers(base, head),
            lambda: sorted([*base.names, *head.names]),
        ),
        Row(
            "gpt2 at 20 lengths: sizes",
            lambda: [resolve(graph, {"seq": seq}) for seq in range(1, 21)],
            lambda: [to_problem(graph) for _ in range(20)],
        ),
        Row(
            "gpt2 at 36 lengths: a sweep",
            lambda: sweep(graph, "seq", strategy="greedy_by_size", at={"batch": 2}),
            lambda: [make_plan(graph, "greedy_by_size") for _ in range(36)],
        ),
    ]
    for name, make in GARBAGE.items():
        path = folder / name
        path.write_bytes(make(megabytes * 10**6))
        found.append(
            Row(
                f"{megabytes} MB of garbage, {name}",
                lambda path=path: refused(path),  # type: ignore[misc]
                lambda path=path: path.read_bytes().decode("latin-1"),  # type: ignore[misc]
            )
        )
    return found


def median_seconds(work: Callable[[], object], runs: int) -> float:
    """Return the median CPU seconds of `runs` runs after one that is not counted."""
    work()
    seconds = []
    for _ in range(runs):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def in_a_process(how: str, path: Path) -> tuple[float, float]:
    """Return CPU seconds and peak MB of a process that reads the file."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", READ, how, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, float(done.stdout)


def show_bombs(folder: Path, megabytes: int) -> None:
    """Print what the worst files take."""
    print(f"\n| {megabytes} MB | CPU s | × zeros | peak MB | × zeros |\n|-|-|-|-|-|", flush=True)
    zeros = folder / "zeros.json"
    zeros.write_bytes(b"[" + b"0," * (megabytes * 10**6 // 2) + b"0]")
    seconds, peak = in_a_process("loads", zeros)
    print(f"| `json.loads` of zeros | {seconds:.1f} | 1.0 | {peak:,.0f} | 1.0 |", flush=True)
    for name, (suffix, make) in BOMBS.items():
        path = folder / f"bomb{suffix}"
        path.write_bytes(make(megabytes * 10**6))
        took, most = in_a_process("load", path)
        path.unlink()
        print(f"| {name} | {took:.1f} | {took / seconds:.1f} | {most:,.0f} | {most / peak:.1f} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, metavar="N")
    parser.add_argument("--bombs", action="store_true", help="the worst files, too: half an hour")
    parser.add_argument("--megabytes", type=int, default=25, metavar="M", help="of each file that is refused")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| what | CPU s | reference, s | × reference |\n|-|-|-|-|")
        for row in rows(folder, options.megabytes):
            seconds = median_seconds(row.work, options.runs)
            reference = median_seconds(row.reference, options.runs)
            ratio = seconds / reference
            print(f"| {row.name} | {seconds:.3f} | {reference:.3f} | {ratio:.2f} |", flush=True)
        if options.bombs:
            show_bombs(folder, options.megabytes)


if __name__ == "__main__":
    main()
