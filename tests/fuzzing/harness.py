"""One mutated file: how it is made from a number, and what `memplan` has to make of it."""

from __future__ import annotations

import contextlib
import io
import resource
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from memplan_engine.cli.app import run
from memplan_engine.errors import MemplanError
from memplan_engine.files import recognise
from memplan_engine.formats.memplan_json.run_files import load_runs
from memplan_engine.strategies import known_strategies
from memplan_engine.strategies.base import is_anytime
from tests.fuzzing.binary_grammars import PICKLE, PROTOBUF, ZIP
from tests.fuzzing.grammars import CSV, JSON, ZIPPED_JSON, Grammar, grow, scramble
from tests.support.work import counted_calls

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
GRAMMARS = {
    ".csv": CSV,
    ".json": JSON,
    ".gz": ZIPPED_JSON,
    ".pickle": PICKLE,
    ".onnx": PROTOBUF,
    ".pt2": ZIP,
}
MOST_CALLS = 5_000_000
"""Calls of Python and C functions that any small file may cause. That is seconds; most files take 0.01 s."""
MOST_BYTES = 2 * 2**30
"""Address space that a process may add to what it has before it reads files."""
LONGEST_MESSAGE = 1000
"""Characters: more is no message that a person reads."""
BY_GRAMMAR = 0.75
"""How many of the files are changed as trees; the others byte by byte."""
CONSTRUCTIVE = [name for name, strategy in known_strategies().items() if not is_anytime(strategy)]


def seeds() -> list[Path]:
    """The sound files that all others are made from; programs of torch, which take ten times as long as the
    others to read, are chosen half as often."""
    files = sorted((FOLDER / "seeds").iterdir())
    return [file for file in files for _ in range(1 if file.suffix == ".pt2" else 2)]


@dataclass(frozen=True, slots=True)
class Case:
    """A mutated file: `name` says from which seed, by which number."""

    name: str
    data: bytes
    parsed: bool


def make_case(seed: int, number: int) -> Case:
    """Case `number` of `seed`: always the same."""
    random = Random(f"{seed}:{number}")
    files = seeds()
    chosen = random.choice(files)
    grammar = GRAMMARS[chosen.suffix]
    data = chosen.read_bytes()
    if random.random() < BY_GRAMMAR:
        data = grammar.put_together(grow(grammar.take_apart(data), random), random)
    else:
        data = scramble(data, random.choice(files).read_bytes(), random)
    name = f"{chosen.name.partition('.')[0]}-{seed}-{number}.{chosen.name.partition('.')[2]}"
    return Case(name, data, _parses(grammar, data))


def _parses(grammar: Grammar, data: bytes) -> bool:
    try:
        grammar.parses(data)
    except Exception:
        return False
    return True


def commands(path: Path, out: Path) -> list[list[str]]:
    """The command lines that read the file at `path`, one is chosen; `out` is for results."""
    name, file = path.name, str(path)
    graph = str(FOLDER / "seeds" / "graph.json")
    if name.startswith("edits"):
        return [["what-if", graph, "--edits", file, "--strategy", "naive"]]
    if name.startswith(("schedule", "streams")):
        return [["plan", graph, "--schedule", file, "--strategy", "greedy_by_size"]]
    if name.startswith("run"):
        return []
    plain = [["plan", file, "--strategy", strategy] for strategy in CONSTRUCTIVE]
    plain += [["plan", file, "--strategy", "auto", "--seconds", "0.05", "--threads", "1"]]
    more = [
        ["peak", file],
        ["layout", file, "--strategy", "greedy_by_size"],
        ["validate", file],
        ["compare", file, "naive", "greedy_by_size", "linear_scan"],
        ["diff", file, graph, "--strategy", "greedy_by_size"],
        ["diff", graph, file, "--strategy", "greedy_by_size", "--json"],
        ["what-if", file, "--resize", "a=64", "--strategy", "naive"],
        ["suggest", file, "--strategy", "naive", "--seconds", "0.2"],
        ["replay", file, "--strategy", "greedy_by_size"],
        ["replay", file, "--strategy", "shared_objects_by_size", "--step", "1"],
        ["report", file, "-o", str(out / "r.html"), "--strategy", "greedy_by_size"],
        ["report", file, "--svg", str(out / "r.svg"), "--strategy", "naive"],
        ["plan", file, "--strategy", "naive", "-o", str(out / "p.json")],
        ["plan", file, "--strategy", "naive", "-o", str(out / "p.csv")],
        ["plan", file, "--strategy", "greedy_by_size", "--capacity", "1KiB"],
        ["plan", file, "--strategy", "greedy_by_size", "--in-place", "--concat", "--plan-inputs"],
        ["plan", file, "--strategy", "greedy_by_size", "--streams", "2", "--round-sizes"],
    ]
    graphs = [
        ["values", file],
        ["reuse", file, "--strategy", "greedy_by_size"],
        ["symbols", file],
        ["range", file, "--strategy", "greedy_by_size"],
        ["buckets", file, "batch", "1,8", "--strategy", "greedy_by_size"],
        ["sweep", file, "batch", "--points", "3", "--strategy", "greedy_by_size"],
    ]
    recordings = [["snapshot", file, "--strategy", "greedy_by_size"]]
    if path.suffix == ".csv":
        graphs = recordings = []
    elif name.startswith("observation2"):
        recordings *= 3
    elif name.startswith(("snapshot", "trace", "line", "observation")):
        graphs = []
        recordings *= 6
    else:
        recordings = []
    return plain + more * 2 + graphs * 2 + recordings


def finding(path: Path, command: list[str] | None, counted: bool = False) -> str:
    """Return what is wrong with how the file at `path` was read, "" for nothing.

    `command` has to end with a known exit code, and a file that it cannot read has to be refused in one line.
    With `counted` it may make MOST_CALLS calls; counting them takes twice as long.
    """
    if not counted:
        return _outcome(path, command)
    with counted_calls() as calls:
        found = _outcome(path, command)
    return found or (f"{command}: {calls.count:,} calls" if calls.count > MOST_CALLS else "")


def _outcome(path: Path, command: list[str] | None) -> str:
    errors, output = io.StringIO(), io.StringIO()
    try:
        if command is None:
            load_runs(path)
        else:
            recognise(path)
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
                code = run(command)
            told = errors.getvalue()
            if code == 2 and (wrong := _wrong_message(told)):
                return f"{command}: {wrong}"
            if code not in (0, 1, 2, 3):
                return f"{command}: exit code {code}"
    except MemplanError as error:
        return _wrong_message(f"memplan: {error}\n")
    except MemoryError:
        return f"{command}: more than {MOST_BYTES:,} bytes"
    except BaseException:
        return f"{command}: {traceback.format_exc()}"
    return ""


def _wrong_message(text: str) -> str:
    lines = [line for line in text.splitlines() if "compiling kernels" not in line]
    if len(lines) != 1 or not lines[0].startswith("memplan: "):
        return f"not one line: {text[:2000]!r}"
    if len(lines[0]) > LONGEST_MESSAGE:
        return f"a message of {len(lines[0])} characters: {lines[0][:300]!r}"
    hidden = [letter for letter in lines[0] if not letter.isprintable()]
    return f"a message with {hidden!r}" if hidden else ""


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Give this process MOST_BYTES of address space more than it has; MemoryError above that."""
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_BYTES, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def load_everything() -> None:
    """Import all that reads files, and use it, before memory is limited."""
    import torch  # noqa: F401

    with tempfile.TemporaryDirectory() as out:
        for file in set(seeds()):
            for command in commands(file, Path(out))[-3:]:
                assert "Traceback" not in finding(file, command)
