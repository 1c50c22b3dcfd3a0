"""Configurations side by side: which fit, the largest value that does, and what one saves against another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memplan_engine.accelerators.presets import Accelerator, accelerator
from memplan_engine.allocator.settings import DEFAULTS, AllocatorSettings
from memplan_engine.devices.rank_answers import DeviceAnswers, RankAnswer, device_answers
from memplan_engine.recordings.configuration import Configuration, Value
from memplan_engine.verdict import Verdict


@dataclass(frozen=True, eq=False)
class ConfigurationAnswer:
    """What one configuration takes on devices `gpu`; no `answers` where it failed."""

    configuration: Configuration
    gpu: Accelerator
    answers: DeviceAnswers | None

    @property
    def fits(self) -> bool:
        """Whether its fullest rank fits with all that may lie beside."""
        return self.answers is not None and self.answers.fullest.verdict is Verdict.FITS

    @property
    def reserved_bytes(self) -> int:
        """Of its fullest rank; 0 where it failed."""
        return 0 if self.answers is None else self.answers.fullest.reserved_bytes


@dataclass(frozen=True)
class Change:
    """Of two configurations: how many bytes less (negative: more) the fullest rank of the second reserves
    than that of the first, and which ranks these are. What other ranks save is no saving."""

    saved_bytes: int
    before: RankAnswer
    after: RankAnswer


def answer_of(
    configuration: Configuration,
    settings: AllocatorSettings = DEFAULTS,
    *,
    headroom: int = 0,
    device: str | None = None,
) -> ConfigurationAnswer:
    """What `configuration` takes on its device, or on `device`, as `device_answers`."""
    gpu = accelerator(configuration.device if device is None else device)
    runs = configuration.runs
    return ConfigurationAnswer(
        configuration, gpu, device_answers(runs, gpu, settings, headroom=headroom) if runs else None
    )


def by_fullest(answers: Sequence[ConfigurationAnswer]) -> list[ConfigurationAnswer]:
    """Those whose fullest rank reserves least come first, those that failed last."""
    return sorted(answers, key=lambda each: (each.answers is None, each.reserved_bytes))


def largest_fitting(
    answers: Sequence[ConfigurationAnswer], name: str
) -> list[tuple[dict[str, Value], Value | None]]:
    """Of each choice of the other values the largest of `name` that fits, None where none does."""
    found: dict[tuple[tuple[str, Value], ...], Value | None] = {}
    for each in answers:
        values = each.configuration.values
        others = others_than(name, values)
        best, value = found.setdefault(others, None), values[name]
        if each.fits and (best is None or _number(value) > _number(best)):
            found[others] = value
    return [(dict(others), best) for others, best in found.items()]


def _number(value: Value) -> float:
    return float(value)


def change_of(before: DeviceAnswers, after: DeviceAnswers) -> Change:
    """What `after` saves."""
    first, second = before.fullest, after.fullest
    return Change(first.reserved_bytes - second.reserved_bytes, first, second)


def bisecting(
    configurations: Sequence[Configuration], name: str, fits: Callable[[Configuration], bool]
) -> Iterator[Configuration]:
    """As few of `configurations`, which differ in `name` alone, as show the largest that fits: what fits with
    a value is taken to fit with each smaller one. `fits` is asked of each before the next is given."""
    ordered = sorted(configurations, key=lambda each: _number(each.values[name]))
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        yield ordered[middle]
        if fits(ordered[middle]):
            low = middle + 1
        else:
            high = middle


def others_than(name: str, values: dict[str, Value]) -> tuple[tuple[str, Value], ...]:
    """The values but for that of `name`."""
    return tuple((key, value) for key, value in values.items() if key != name)
