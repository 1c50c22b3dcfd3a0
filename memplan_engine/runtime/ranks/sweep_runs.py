"""Configurations of a script, several at once, each recorded once for a script, arguments and versions."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import torch

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.formats.memplan_json.ranks_folder import write_ranks
from memplan_engine.formats.memplan_json.sweep_folder import recorded, write_sweep
from memplan_engine.recordings.configuration import Configuration
from memplan_engine.runtime.ranks.rank_runs import observe_ranks
from memplan_engine.runtime.recorder.script_run import MOST_STEPS, SECONDS, check_script
from memplan_engine.system import parse_python

LETTERS = 16
"""Of a digest in the name of a folder."""
SETTINGS = ("TORCH", "PYTORCH", "CUDA_")
"""How variables of the environment begin that torch asks for."""
LOOK_SECONDS = 0.2
"""Between two looks at workers that take seconds; Python hears Ctrl-C only then."""
Arch = Callable[[str], str]


@dataclass
class Sweep:
    """Configurations of `script` and where their ranks are kept: `folder`, which has them still when it is
    gone through again. `arch` says of a device whose operators are taken. `jobs` run at the same time, each
    no longer than `seconds` a rank. `tell` is told of each stage, in the thread that asks."""

    script: Path
    folder: Path
    arch: Arch
    jobs: int = 1
    seconds: float = SECONDS
    tell: Callable[[str], None] = lambda said: None
    finished: list[tuple[str, Configuration]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Have ready what all take.

        Raises
        ------
        InputError: no such script, no place for the folder.
        """
        for device in {each.device for each in configurations}:
            check_script(self.script, self.seconds, "cuda", self.arch(device))
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            found = error.strerror or str(error)
            raise InputError(str(self.folder), "", found, "a folder that can be made") from None

    def run(self, searches: Sequence[Iterator[Configuration]], total: int) -> None:
        """Record what each of `searches` asks for, one after another, and several searches at once. After
        each `finished` has one more and `sweep.json` names it; KeyboardInterrupt leaves those that are
        finished. One that fails is kept with its reason.

        Raises
        ------
        InputError: nothing but failures; the first.
        """
        left = list(searches)
        running: dict[Future[tuple[str, Configuration]], Iterator[Configuration]] = {}
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                while left or running:
                    while left and len(running) < self.jobs:
                        self._next(pool, left.pop(0), running, total)
                    done, _ = wait(running, LOOK_SECONDS, FIRST_COMPLETED)
                    for each in done:
                        search = running.pop(each)
                        self.finished.append(each.result())
                        write_sweep(self.folder, self.script.name, self.finished)
                        # What it asks for next may rest on what was found.
                        self._next(pool, search, running, total)
            except BaseException:
                self._stop.set()
                raise
        if self.finished and all(each.error for _, each in self.finished):
            raise InputError(
                self.script.name,
                self.finished[0][1].name,
                self.finished[0][1].error,
                "a grid of which some configuration runs",
            )

    def _next(
        self,
        pool: ThreadPoolExecutor,
        search: Iterator[Configuration],
        running: dict[Future[tuple[str, Configuration]], Iterator[Configuration]],
        total: int,
    ) -> None:
        following = next(search, None)
        if following is not None:
            running[pool.submit(self._one, following)] = search
            self.tell(f"{len(self.finished) + len(running)} of at most {total}: {following.name}")

    def _one(self, asked: Configuration) -> tuple[str, Configuration]:
        name = digest_of(self.script, asked, self.arch(asked.device))
        runs = recorded(self.folder, name)
        if runs is not None:
            return name, replace(asked, runs=runs)
        try:
            runs = observe_ranks(
                self.script,
                asked.arguments,
                world_size=asked.world_size,
                device="cuda",
                arch=self.arch(asked.device),
                seconds=self.seconds,
                stop=self._stop.is_set,
            )
        except MemplanError as error:
            return name, replace(asked, error=str(error))
        write_ranks(runs, self.folder / name)
        return name, replace(asked, runs=runs)


def digest_of(script: Path, asked: Configuration, arch: str) -> str:
    """A name for what `asked` records: of the script, the files beside it that it imports, its arguments, the
    world, the operators' architecture, what torch's variables say, and versions. Data that it reads, and
    packages that are installed, go by their versions alone."""
    sources = {str(path): _sha(path.read_bytes()) for path in local_sources(script)}
    variables = {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)}
    versions = (sys.version, str(torch.__version__), version("memplan"), MOST_STEPS)
    said = (str(Path.cwd()), sources, asked.arguments, asked.world_size, arch, sorted(variables.items()))
    return _sha(json.dumps([said, versions]).encode())[:LETTERS]


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def local_sources(script: Path) -> list[Path]:
    """`script` and the files below its folder that it imports, or those that they import, in order."""
    root = script.resolve().parent
    found: dict[Path, None] = {}
    left = [script.resolve()]
    while left:
        path = left.pop()
        if path in found:
            continue
        found[path] = None
        try:
            tree = parse_python(path.read_bytes())
        except (SyntaxError, ValueError):
            # It is said when it runs.
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [(root, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = path.parents[node.level - 1] if node.level else root
                module = node.module or ""
                names = [(base, f"{module}.{alias.name}".strip(".")) for alias in node.names]
            else:
                continue
            left += [each for base, name in names for each in _files(base, name)]
    return sorted(found)


def _files(base: Path, name: str) -> Iterator[Path]:
    """Those that an import of `name` below `base` runs."""
    at = base
    for part in name.split("."):
        at /= part
        for path in (at.with_suffix(".py"), at / "__init__.py"):
            if path.is_file():
                yield path
