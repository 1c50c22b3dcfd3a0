"""What each test's models needed when somebody last said that it is right: one JSON file beside the tests.

Small, to be committed: the figures, and what the peak was made of. A figure stands on a line of its own, and
tests in the order of their names, so that git merges two branches that change different tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import Field

from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Strict, load_as
from memplan_engine.system import write_atomically

FORMAT: Literal["memplan/baselines"] = "memplan/baselines"
SUFFIX = ".memory.json"
MOST_HOLDINGS = 20
"""Names of what a peak holds that are kept: a test's entry stays below 2 kB."""


class Baseline(Strict):
    """Bytes: of the arena, of the peak, and, largest first, of what the peak holds by name. `made_with` are
    the versions of memplan and torch."""

    arena: Count
    peak: Count
    made_with: str = ""
    at_peak: dict[str, Count] = Field(default_factory=dict)

    def is_above(self, other: Baseline) -> bool:
        """Whether arena or peak need more than the other's."""
        return self.arena > other.arena or self.peak > other.peak

    def is_below(self, other: Baseline) -> bool:
        """Whether one of them needs less, and none more."""
        return other.is_above(self) and not self.is_above(other)

    @property
    def nbytes(self) -> tuple[int, int, dict[str, int]]:
        """What is counted: two with the same are one."""
        return self.arena, self.peak, self.at_peak


class BaselineFile(Strict):
    """All of one file of tests, by the test's name within it."""

    format: Literal["memplan/baselines"] = FORMAT
    version: Literal[1] = 1
    baselines: dict[str, Baseline] = Field(default_factory=dict)


def baseline_path(test_file: Path) -> Path:
    """Where the baselines of the tests in `test_file` lie: beside it."""
    return test_file.with_name(test_file.stem + SUFFIX)


def baseline_of(checked: ModelCheck) -> Baseline:
    """What is to be kept of `checked`."""
    kept = {each.name[:1000]: each.nbytes for each in checked.holdings[:MOST_HOLDINGS]}
    return Baseline(
        arena=checked.figures.arena, peak=checked.peak.nbytes, made_with=made_with(), at_peak=kept
    )


def made_with() -> str:
    """ "memplan 0.1.0, torch 2.13.0": what a graph and its plan depend on beside the model."""
    told = []
    for package in ("memplan", "torch"):
        try:
            told.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(told)


def load_baselines(path: Path) -> dict[str, Baseline]:
    """The baselines in `path`, none where there is no such file.

    Raises
    ------
    InputError: a file that is damaged, of another kind, or has git's conflict markers in it.
    """
    if not path.exists():
        return {}
    try:
        return load_as(BaselineFile, path, FORMAT).baselines
    except InputError as error:
        expected = f"{error.expected} (or remove the file: pytest --memplan-update writes it)"
        raise InputError(error.source, error.place, error.found, expected) from None


def update_baselines(path: Path, found: Mapping[str, Baseline]) -> int:
    """Put those that are `found` into `path`, beside the others there; how many are new or other bytes. Where
    none is, the file stays as it is: lines and versions alone are no change.

    Raises
    ------
    InputError: what `load_baselines` raises, or a file that cannot be written.
    """
    kept = load_baselines(path)
    new = {name: each for name, each in found.items() if name not in kept or kept[name].nbytes != each.nbytes}
    if new:
        merged = kept | new
        content = BaselineFile(baselines={name: merged[name] for name in sorted(merged)})
        text = json.dumps(content.model_dump(mode="json"), indent=1, ensure_ascii=False)
        write_atomically(path, f"{text}\n".encode("utf-8", "surrogatepass"))
    return len(new)
