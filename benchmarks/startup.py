"""How long a whole process takes: `memplan plan` on 1,000 buffers, and what it cannot be quicker than.

    python benchmarks/startup.py [--runs N]

Each line is a process of its own, run in turn with the others, kernels compiled before: wall and CPU time of
the whole process, the median of N runs. The floor is a program that imports NumPy and numba and calls one
kernel that comes from numba's cache. In the first file all buffers are of one size, so that the first order
that `auto` tries meets the bound; in the second they are not, and it takes branch and bound, too.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BUFFERS = 1_000
FLOOR = """import numpy as np
from numba import njit

@njit(cache=True)
def total(numbers):
    result = 0
    for number in numbers:
        result += number
    return result

total(np.arange(10))
"""
MEMPLAN = (sys.executable, "-c", "from memplan_engine.cli.main import main; main()")


def list_of_buffers(equal: bool) -> str:
    """A CSV of buffers that live 2 to 17 steps, one made at each step."""
    random = np.random.default_rng(1)
    length = random.integers(2, 18, BUFFERS).tolist()
    size = [4096] * BUFFERS if equal else (64 * random.integers(1, 1_000, BUFFERS)).tolist()
    rows = (f"{i},{i},{i + length[i]},{size[i]}\n" for i in range(BUFFERS))
    return "id,lower,upper,size\n" + "".join(rows)


def make_cases(folder: Path) -> dict[str, tuple[str, ...]]:
    """The command lines by what they are, and the files that they read in `folder`."""
    (folder / "floor.py").write_text(FLOOR)
    (folder / "equal.csv").write_text(list_of_buffers(equal=True))
    (folder / "mixed.csv").write_text(list_of_buffers(equal=False))
    return {
        "python": (sys.executable, "-c", "pass"),
        "import numpy": (sys.executable, "-c", "import numpy"),
        "import numba": (sys.executable, "-c", "import numba"),
        "one kernel from the cache": (sys.executable, "floor.py"),
        "import memplan_engine": (sys.executable, "-c", "import memplan_engine"),
        "memplan --help": (*MEMPLAN, "--help"),
        "memplan plan equal.csv": (*MEMPLAN, "plan", "equal.csv"),
        "memplan plan mixed.csv": (*MEMPLAN, "plan", "mixed.csv"),
        "memplan plan mixed.csv --strategy greedy_by_size": (
            *(*MEMPLAN, "plan", "mixed.csv"),
            *("--strategy", "greedy_by_size"),
        ),
    }


def run(command: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        command,
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=11, metavar="N")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = make_cases(folder)
        for command in cases.values():
            # Compiles what is not in a cache yet.
            run(command, folder)
        seconds: dict[str, list[tuple[float, float]]] = {label: [] for label in cases}
        for _ in range(runs):
            for label, command in cases.items():
                seconds[label].append(run(command, folder))
    print("| process | wall s | quickest | CPU s |\n|-|-|-|-|")
    for label, taken in seconds.items():
        walls, cpus = zip(*taken, strict=True)
        middle = (statistics.median(walls), min(walls), statistics.median(cpus))
        print(f"| {label} | " + " | ".join(f"{each:.2f}" for each in middle) + " |")


if __name__ == "__main__":
    main()
