"""Configurations of a script, several at once, each recorded once for a script, arguments and versions."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.formats.memplan_json.ranks_folder import write_ranks
from memplan_engine.formats.memplan_json.sweep_folder import recorded, write_sweep
from memplan_engine.recordings.configuration import Configuration
from memplan_engine.runtime.ranks.rank_launch import PROCESS
from memplan_engine.runtime.ranks.rank_runs import observe_ranks
from memplan_engine.runtime.scripts.script_run import MOST_STEPS, SECONDS, check_script, make_ready
from memplan_engine.torch_capture.local_sources import local_sources, torch_settings
from memplan_engine.torch_capture.torch_fake import torch_version

LETTERS = 16
"""Of a digest in the name of a folder."""
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
    _building: threading.Lock = field(default_factory=threading.Lock)
    _is_ready: bool = False

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Look whether all can run, and make the folder.

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
            self._make_ready(asked.device)
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

    def _make_ready(self, device: str) -> None:
        """Once, not by each that begins: it may be compiled."""
        with self._building:
            if not self._is_ready:
                target = check_script(self.script, self.seconds, "cuda", self.arch(device))
                make_ready(target, self.script.name, PROCESS)
                self._is_ready = True


def digest_of(script: Path, asked: Configuration, arch: str) -> str:
    """A name for what `asked` records: of the script, the files beside it that it imports, its arguments, the
    world, the operators' architecture, what torch's variables say, and versions. Data that it reads, and
    packages that are installed, go by their versions alone."""
    sources = {str(path): _sha(path.read_bytes()) for path in local_sources(script)}
    versions = (sys.version, torch_version(), version("memplan"), MOST_STEPS)
    said = (str(Path.cwd()), sources, asked.arguments, asked.world_size, arch, torch_settings())
    return _sha(json.dumps([said, versions]).encode())[:LETTERS]


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
