"""Of each rank of a distributed run what it reserves on its device, and whether that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from memplan_engine.accelerators.presets import Accelerator
from memplan_engine.allocator.answers import Answers, three_answers
from memplan_engine.allocator.settings import DEFAULTS, AllocatorSettings, parse_settings
from memplan_engine.recordings.observed_flow import flow_peak
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.verdict import Reason, Verdict

EXPANDABLE = parse_settings("expandable_segments:True")
"""Beside the settings that are asked about: what torch advises when memory is short."""


@dataclass(frozen=True, eq=False)
class RankAnswer:
    """What one rank takes: `answers` has its live bytes, exact, and what is reserved under each of the
    settings."""

    run: RankRun
    answers: Answers

    @property
    def verdict(self) -> Verdict:
        """Return whether it fits under the chosen settings."""
        found = self.answers.chosen.verdict
        assert found is not None
        return found

    @property
    def reason(self) -> Reason | None:
        """Return what an undecided verdict depends on; None for any other."""
        return self.answers.chosen.reason

    @property
    def reserved_bytes(self) -> int:
        """Under the settings that were asked about, without a limit."""
        return self.answers.chosen.run.peak_reserved

    @property
    def total_bytes(self) -> tuple[int, int]:
        """What the device holds in all, least and most."""
        found = self.answers.chosen.total
        assert found is not None
        return found

    @cached_property
    def peak(self) -> tuple[str, str]:
        """Where most is live: the op, and the line of the user's code."""
        seen = self.run.observation
        assert seen.flow is not None
        _, op = flow_peak(seen.flow)
        if op < 0:
            return "", ""
        source = seen.flow.source_of(op)
        return f"{seen.ops.names[op]} ({seen.flow.stages[op]})", "" if source is None else str(source)


@dataclass(frozen=True, eq=False)
class DeviceAnswers:
    """All ranks that were run, in order."""

    ranks: tuple[RankAnswer, ...]

    @property
    def fullest(self) -> RankAnswer:
        """The rank that holds most of its device: the one that runs out first."""
        return max(self.ranks, key=lambda each: each.reserved_bytes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures rest on and leave out, each said once."""
        return tuple(dict.fromkeys(note for each in self.ranks for note in each.answers.notes))


def device_answers(
    runs: Sequence[RankRun],
    gpu: Accelerator,
    settings: AllocatorSettings = DEFAULTS,
    *,
    headroom: int = 0,
) -> DeviceAnswers:
    """Of each of `runs` what it takes on a `gpu` of its own under `settings`, and with expandable segments,
    `headroom` bytes staying free. Nothing is traced again. NCCL's buffers are counted for each process group
    of more than one rank.

    Raises
    ------
    InputError: as `simulate_allocator`.
    """
    candidates = [each for each in (EXPANDABLE,) if each != settings]
    answers = [
        RankAnswer(
            run,
            three_answers(
                run.observation,
                settings,
                gpu=gpu,
                headroom=headroom,
                communicators=run.groups - len(run.group_sizes),
                groups=run.group_sizes,
                candidates=candidates,
            ),
        )
        for run in runs
    ]
    return DeviceAnswers(tuple(answers))
