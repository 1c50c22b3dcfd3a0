"""Ranks of the built-in Llama as a job of the scheduler: what may be asked, and what came of it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from memplan_dashboard.background.run_job import WholeJob

from memplan_engine.errors import InputError

WORLDS = (2, 4, 8, 16, 32, 64)
TENSOR = (1, 2)
"""Ranks that share each matrix: there are two heads for keys and values."""
STAGES = (1, 2, 4)
"""Of a pipeline through four layers."""
SCHEDULES = ("GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
ONE_STAGE = ("GPipe", "1F1B")
"""Schedules in which a rank has one stage; the others give it two."""
LAYERS = 4
CHECKPOINTS = ("none", "selective", "full")
BATCHES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class RanksAsked:
    """A way to train the small Llama of `example_graphs/llama_ranks.py` on `world` ranks."""

    world: int = 8
    tensor: int = 1
    stages: int = 1
    schedule: str = "1F1B"
    checkpoint: str = "none"
    batch: int = 2

    @property
    def name(self) -> str:
        """In words, for lists."""
        piped = f" × PP {self.stages} {self.schedule}" if self.stages > 1 else ""
        shards = self.world // (self.tensor * self.stages)
        told = f"FSDP {shards} × TP {self.tensor}{piped}"
        return f"small Llama, {told}, checkpoints {self.checkpoint}, batch {self.batch}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Those of the script.

        Raises
        ------
        InputError: what the script cannot do, or nobody offers.
        """
        self._check()
        numbers = {"--tp": self.tensor, "--pp": self.stages, "--batch": self.batch}
        words = [word for name, value in numbers.items() for word in (name, str(value))]
        return (*words, "--schedule", self.schedule, "--checkpoint", self.checkpoint)

    def _check(self) -> None:
        for name, value, known in (
            ("ranks", self.world, WORLDS),
            ("tensor parallel", self.tensor, TENSOR),
            ("stages", self.stages, STAGES),
            ("schedule", self.schedule, SCHEDULES),
            ("checkpoints", self.checkpoint, CHECKPOINTS),
            ("batch", self.batch, BATCHES),
        ):
            if value not in known:
                raise InputError("ranks", name, repr(value), f"one of {', '.join(map(str, known))}")
        if self.tensor * self.stages > self.world:
            found = f"{self.tensor} × {self.stages} of {self.world} ranks"
            raise InputError("ranks", "tensor parallel × stages", found, "no more than there are ranks")
        rounds = 1 if self.schedule in ONE_STAGE else 2
        if self.stages > 1 and self.stages * rounds > LAYERS:
            found = f"{self.stages * rounds} stages of {self.schedule} on {self.stages} ranks"
            raise InputError("ranks", "stages", found, f"at most {LAYERS}, one for each layer")


@dataclass(eq=False)
class RanksJob(WholeJob):
    """The ranks that differ, one after another; `archive` is a zip of them, None before."""

    WORK = "ranks"
    PROCESS = "memplan_dashboard.background.ranks_process"
    ELSEWHERE = "`memplan devices --seconds`"

    asked: RanksAsked
    archive: bytes | None = None

    def _read(self, values: dict[str, Any]) -> bytes:
        return base64.b64decode(values["archive"])

    def _take(self, result: bytes) -> None:
        self.archive = result
