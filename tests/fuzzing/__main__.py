"""Does any broken file make memplan do anything but read it or say, in one line, what is wrong?

    python -m tests.fuzzing [--seed S] [--count N] [--first N] [--keep FOLDER]

Each case is a small sound file of some format (`seeds/`) that was changed: as the tree that its format is
(`grammars.py`), three of four, or byte by byte. It is read and planned by a command line chosen at random,
in a process that may take 2 GiB and make 5 million calls. Cases follow from the seed and their number alone.
What is found goes into FOLDER; moved to `corpus/`, it is tried by every test run from then on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests import ROOT
from tests.fuzzing.harness import commands, finding, little_memory, load_everything, make_case
from tests.support.waiting import HANG_SECONDS

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
"""Each thread takes address space for its stack and its heap."""


def work(seed: int, numbers: range) -> None:
    """Try cases, and print a line of JSON before each and after each."""
    pipe = sys.stdout
    # A case that hangs ends the process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    load_everything()
    with little_memory(), tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            case = make_case(seed, number)
            path = Path(folder) / case.name
            path.write_bytes(case.data)
            choices = commands(path, Path(folder))
            command = Random(f"{seed}:{number}:command").choice(choices) if choices else None
            signal.alarm(int(HANG_SECONDS))
            print(
                json.dumps({"number": number, "name": case.name, "parsed": case.parsed}),
                file=pipe,
                flush=True,
            )
            print(json.dumps({"finding": finding(path, command, counted=True)}), file=pipe, flush=True)
            signal.alarm(0)
            path.unlink()


def fuzz(seed: int, first: int, count: int) -> Iterator[tuple[str, bool, str]]:
    """For each case its name, whether it is past the first parse, and what was found, "" for nothing. A
    process that hangs or dies is a finding; the next one goes on behind it."""
    number, last = first, first + count
    while number < last:
        first_of_worker = number
        arguments = ["--work", "--seed", str(seed), "--first", str(number), "--count", str(last - number)]
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzzing", *arguments],
            cwd=ROOT,
            env=os.environ | ONE_THREAD,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdout
        try:
            for line in worker.stdout:
                case = json.loads(line)
                outcome = json.loads(worker.stdout.readline() or '{"finding": "hangs or dies"}')
                number = case["number"] + 1
                yield case["name"], case["parsed"], outcome["finding"]
            if worker.wait() and number == first_of_worker:
                raise RuntimeError("the process that tries the cases does not start")
        finally:
            worker.kill()
            worker.wait()


def main() -> int:
    """Try the cases, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.seed, range(given.first, given.first + given.count))
        return 0
    tried = parsed = found = 0
    for name, is_parsed, what in fuzz(given.seed, given.first, given.count):
        tried += 1
        parsed += is_parsed
        if what:
            found += 1
            print(f"{name}: {what}", flush=True)
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                number = int(name.partition(".")[0].rpartition("-")[2])
                (given.keep / name).write_bytes(make_case(given.seed, number).data)
    print(f"{tried:,} files, {parsed / max(tried, 1):.0%} of them past the first parse; {found} findings")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
