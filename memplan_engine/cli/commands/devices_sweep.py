"""`memplan devices --sweep`: the configurations of a grid, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from memplan_engine.accelerators.presets import accelerator, operators_of
from memplan_engine.allocator.settings import AllocatorSettings
from memplan_engine.cli.output import show
from memplan_engine.cli.progress import stages
from memplan_engine.devices.grid import Grid, read_grid
from memplan_engine.devices.sweep_answers import (
    ConfigurationAnswer,
    answer_of,
    bisecting,
    others_than,
    steps_of,
)
from memplan_engine.errors import InputError
from memplan_engine.recordings.configuration import Configuration
from memplan_engine.reporters.devices.sweep_tables import sweep_summary, sweep_tables


def check_place(folder: Path) -> None:
    """Raise InputError where `folder` cannot be made, before work begins that it is to keep."""
    if not folder.resolve().parent.is_dir():
        raise InputError(str(folder), "", "a folder that does not exist", "a place in an existing folder")


@dataclass(frozen=True)
class Judge:
    """Under what configurations are judged, and how it is told: on their own devices, or on `device`."""

    settings: AllocatorSettings
    headroom: int
    device: str | None
    as_json: bool

    _known: dict[Configuration, ConfigurationAnswer] = field(default_factory=dict)

    def answer(self, configuration: Configuration) -> ConfigurationAnswer:
        """What it takes; its ranks are simulated once."""
        if configuration not in self._known:
            self._known[configuration] = answer_of(
                configuration, self.settings, headroom=self.headroom, device=self.device
            )
        return self._known[configuration]

    def show(self, configurations: Sequence[Configuration], largest: str, *, complete: bool) -> None:
        """Print what they take."""
        answers = [self.answer(each) for each in configurations]
        show(
            self.as_json,
            lambda: sweep_summary(answers, largest, complete),
            lambda: sweep_tables(answers, largest, complete),
        )


def sweep_grid(path: Path, folder: Path | None, jobs: int, seconds: float | None, judge: Judge) -> None:
    """Record the grid `path` in `folder`, what is there already not again, and print what it takes; Ctrl-C
    ends it with those that are finished."""
    from memplan_engine.torch_capture.torch_fake import look_for_torch

    grid = read_grid(path)
    if judge.device is not None:
        accelerator(judge.device)
    if folder is None:
        raise InputError("--output", "", "none", "a folder that keeps what is recorded, as -o sweep")
    check_place(folder)
    look_for_torch("running ranks")
    from memplan_engine.runtime.ranks.sweep_runs import Sweep
    from memplan_engine.runtime.scripts.script_run import SECONDS

    complete = True
    with stages() as tell:
        sweep = Sweep(
            grid.script,
            folder,
            lambda device: operators_of(accelerator(device)),
            jobs,
            SECONDS if seconds is None else seconds,
            tell,
        )
        sweep.prepare(grid.configurations)

        def fits(asked: Configuration) -> bool:
            """A batch of which the data has none fits, and trains nothing."""
            done = [each for _, each in sweep.finished]
            own = next((each for each in done if each.values is asked.values), None)
            if own is None or (not steps_of(own) and any(map(steps_of, done))):
                return False
            return judge.answer(own).fits

        try:
            sweep.run(searches_of(grid, fits), len(grid.configurations))
        except KeyboardInterrupt:
            if not sweep.finished:
                raise
            complete = False
    found = {id(each.values): each for _, each in sweep.finished}
    finished = [found[id(each.values)] for each in grid.configurations if id(each.values) in found]
    judge.show(finished, grid.largest, complete=complete)


def searches_of(grid: Grid, fits: Callable[[Configuration], bool]) -> list[Iterator[Configuration]]:
    """What is run one after another: each configuration by itself, or, of those that differ in
    `grid.largest` alone, as few as show the largest that fits."""
    if not grid.largest:
        return [iter([each]) for each in grid.configurations]

    def others(each: Configuration) -> str:
        return repr((others_than(grid.largest, each.values), each.world_size, each.device))

    groups = groupby(sorted(grid.configurations, key=others), others)
    return [bisecting(list(group), grid.largest, fits) for _, group in groups]
