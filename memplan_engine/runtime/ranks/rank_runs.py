"""Ranks of a script, each in a process of its own: those that differ, and those that they wait for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from memplan_engine.errors import InputError
from memplan_engine.recordings.observation import Observation
from memplan_engine.recordings.rank_run import PipelineAction, RankRun
from memplan_engine.runtime.ranks import rank_process
from memplan_engine.runtime.ranks.fake_world import A_MACHINE, check_rank
from memplan_engine.runtime.ranks.mailbox import waiting
from memplan_engine.runtime.ranks.rank_facts import read_facts
from memplan_engine.runtime.recorder.fake_device import Target
from memplan_engine.runtime.recorder.own_process import answer
from memplan_engine.runtime.recorder.script_run import (
    SECONDS,
    check_script,
    end_script,
    start_script,
    too_long,
)
from memplan_engine.runtime.scratch import scratch_folder

LOOK_SECONDS = 0.05
"""Between two looks at processes that take seconds."""
STUCK_SECONDS = 5.0
"""Ranks that all wait for each other so long have sent what they will: a message takes LOOK_SECONDS."""
ALL, DISTINCT = "all", "distinct"


class StoppedError(Exception):
    """Nobody wants the ranks any more."""


def observe_ranks(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    world_size: int,
    ranks: str | Sequence[int] = DISTINCT,
    device: str = "cpu",
    arch: str | None = None,
    seconds: float = SECONDS,
    tell: Callable[[str], None] = lambda said: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[RankRun, ...]:
    """What ranks of `script`, run as by `torchrun` on `world_size` ranks, allocate, as `observe_script` sees
    one process; no GPU and no other machine is needed.

    `ranks` are the numbers of those to run, "all", or "distinct": of ranks with the same stages of a pipeline
    and shards of the same shapes one is run. Which these are is worked out for all ranks from the meshes and
    placements that the one that runs has; ranks of which it says nothing are run themselves. A rank that a
    chosen one waits for (its pipeline's stages tell each other the forms of their tensors) runs, too. `stop`
    is asked all along: what runs is ended once it is true.

    Raises
    ------
    InputError: as `observe_script`, with the rank; a world size or rank that cannot be; ranks that wait for
        each other for ever. MemplanError: a process that ends without an answer. StoppedError: by `stop`.
    """
    check_rank(0, world_size)
    chosen = chosen_ranks(ranks, world_size)
    target = check_script(script, seconds, device, arch, cards=_cards(device, world_size))
    with scratch_folder() as folder:
        runs = _Runs(Path(script), tuple(arguments), world_size, target, seconds, folder, tell, stop)
        try:
            if isinstance(ranks, str) and ranks == DISTINCT:
                return runs.distinct()
            runs.run(chosen)
            return runs.each()
        finally:
            runs.end()


def chosen_ranks(ranks: str | Sequence[int], world_size: int) -> tuple[int, ...]:
    """The numbers that `ranks` stands for: "all", "distinct" (all, of which some are folded), "0,7", or they
    themselves.

    Raises
    ------
    InputError: what is no rank of this world.
    """
    if ranks in (ALL, DISTINCT):
        return tuple(range(world_size))
    parts = ranks.split(",") if isinstance(ranks, str) else list(ranks)
    expected = f"distinct, all, or numbers from 0 to {world_size - 1} with commas between"
    numbers = []
    for part in parts:
        text = str(part).strip()
        if not (text.isascii() and text.isdigit()) or int(text) >= world_size:
            raise InputError("--ranks", "", repr(text), expected)
        numbers.append(int(text))
    if not numbers:
        raise InputError("--ranks", "", "none", expected)
    return tuple(sorted(set(numbers)))


def _cards(device: str, world_size: int) -> int:
    """How many cards a rank finds: those of its machine, of which it takes that of its LOCAL_RANK. Where this
    machine has cards of its own they are what it is, and a rank finds one."""
    return 1 if device == "cpu" or torch.cuda.is_available() else min(A_MACHINE, world_size)


@dataclass
class _Runs:
    """The processes of one script, and what they have left."""

    script: Path
    arguments: tuple[str, ...]
    world_size: int
    target: Target
    seconds: float
    folder: Path
    tell: Callable[[str], None]
    stop: Callable[[], bool]
    live: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)
    done: dict[int, Observation] = field(default_factory=dict)
    facts: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "mail").mkdir()

    def distinct(self) -> tuple[RankRun, ...]:
        """The ranks that differ, with those that are like them."""
        left = set(range(self.world_size))
        alike: dict[int, list[int]] = {}
        while left:
            self.run([min(left)])
            for rank in sorted(self.done):
                if rank not in left:
                    continue
                digests = self.facts[rank]["digests"]
                same = [each for each in digests if digests[each] == digests[rank] and each in left]
                alike[rank] = sorted({rank, *same})
                left -= set(alike[rank])
        return tuple(self._run_of(rank, alike[rank]) for rank in sorted(alike))

    def each(self) -> tuple[RankRun, ...]:
        """All that have run."""
        return tuple(self._run_of(rank, [rank]) for rank in sorted(self.done))

    def _run_of(self, rank: int, ranks: Sequence[int]) -> RankRun:
        facts = self.facts[rank]
        stages, sizes = tuple(facts["stages"]), tuple(facts["groups"])
        actions = tuple(PipelineAction(*each) for each in facts["actions"])
        seen = self.done[rank]
        return RankRun(rank, self.world_size, seen, tuple(ranks), stages, len(sizes), actions, sizes)

    def run(self, ranks: Sequence[int]) -> None:
        """Run these, one after another, and at the same time whoever is waited for."""
        for rank in ranks:
            if rank in self.done:
                continue
            self.tell(f"running rank {rank} of {self.world_size}")
            self.start(rank)
            stuck_since = time.monotonic()
            while self.live:
                if self.stop():
                    raise StoppedError
                if self._look() or not self._all_wait():
                    stuck_since = time.monotonic()
                elif time.monotonic() - stuck_since > STUCK_SECONDS:
                    self._give_up()
                time.sleep(LOOK_SECONDS)

    def start(self, rank: int) -> None:
        """A process for `rank`."""
        folder = self._home(rank)
        folder.mkdir()
        more: dict[str, Any] = {
            "rank": rank,
            "world_size": self.world_size,
            "mailbox": str(self.folder / "mail"),
        }
        self.live[rank] = start_script(
            self.script, self.arguments, self.target, folder, module=rank_process.__name__, **more
        )
        self.began[rank] = time.monotonic()

    def _home(self, rank: int) -> Path:
        return self.folder / str(rank)

    def _look(self) -> bool:
        """Take what is there of those that have ended, and start those that are waited for; whether anything
        has happened."""
        happened = False
        for rank, process in list(self.live.items()):
            if process.poll() is None:
                if time.monotonic() - self.began[rank] > self.seconds:
                    raise too_long(self._name(rank), self.seconds)
                continue
            happened = True
            del self.live[rank]
            end_script(process)
            try:
                seen = answer(self._home(rank), process.returncode, self._name(rank))
            except InputError as error:
                raise InputError(self._name(rank), error.place, error.found, error.expected) from None
            self.done[rank] = seen
            self.facts[rank] = read_facts(self._home(rank))
        for rank, (sender, where) in waiting(self.folder / "mail").items():
            if not 0 <= sender < self.world_size:
                raise self._waits(rank, sender, where, f"is none of {self.world_size}")
            if sender not in self.live and sender not in self.done:
                self.tell(f"running rank {sender} of {self.world_size}, for which rank {rank} waits")
                self.start(sender)
                happened = True
        return happened

    def _all_wait(self) -> bool:
        return set(self.live) <= set(waiting(self.folder / "mail"))

    def _give_up(self) -> None:
        waits = waiting(self.folder / "mail")
        stuck = waits.keys() & self.live.keys()
        if not stuck:
            return
        rank = min(stuck)
        sender, where = waits[rank]
        why = "has ended without sending it" if sender in self.done else "waits, too"
        raise self._waits(rank, sender, where, why)

    def _waits(self, rank: int, sender: int, where: str, why: str) -> InputError:
        found = f"an object of rank {sender} that is waited for {where}: that rank {why}"
        return InputError(self._name(rank), "", found, "ranks that send what others wait for")

    def _name(self, rank: int) -> str:
        return f"{self.script.name}, rank {rank}"

    def end(self) -> None:
        """End what still runs."""
        while self.live:
            end_script(self.live.popitem()[1])
