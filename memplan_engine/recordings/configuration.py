"""One way to run a script on many devices, beside others: what a sweep goes through."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.recordings.rank_run import RankRun

Value = int | float | str


@dataclass(frozen=True, slots=True, eq=False)
class Configuration:
    """A script with `arguments`, on `world_size` devices called `device`; `values` are those of the grid, by
    name. `runs` are its ranks; none where it failed, with the reason in `error`."""

    values: dict[str, Value]
    arguments: tuple[str, ...]
    world_size: int
    device: str
    runs: tuple[RankRun, ...] = ()
    error: str = ""

    @property
    def name(self) -> str:
        """The values, as "tp=2, batch=4"."""
        return named(self.values)


def named(values: dict[str, Value]) -> str:
    """Values of a grid in words."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
