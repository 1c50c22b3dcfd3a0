"""The points of a store as columns: what a page draws of a hundred thousand of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from memplan_engine.history.history_values import HistorySeries

Ints: TypeAlias = npt.NDArray[np.int64]
UNKNOWN = -1
"""Stands for bytes that nobody measured."""
FIGURES = "arena", "demand", "bound", "weights", "temporaries", "eager", "reserved"


@dataclass(frozen=True, slots=True, eq=False)
class RunColumns:
    """Runs in the order of commits: (runs,) each. `number` counts them in the order in which they came. Times
    are in seconds since 1970, UTC; 0 for one that is not known."""

    number: Ints
    project: tuple[str, ...]
    commit: tuple[str, ...]
    parent: tuple[str, ...]
    branch: tuple[str, ...]
    dirty: npt.NDArray[np.bool_]
    committed_at: Ints
    recorded_at: Ints

    def __len__(self) -> int:
        return len(self.commit)


@dataclass(frozen=True, slots=True, eq=False)
class PointColumns:
    """The points of a series in the order of commits, (points,) each: `run` is the place of the run in
    `RunColumns`, `number` that of the `HistoryPoint`, `figures` are bytes by the names of `HistoryFigures`,
    UNKNOWN for what nobody measured."""

    run: Ints
    number: Ints
    figures: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.run)


@dataclass(frozen=True, slots=True, eq=False)
class HistoryColumns:
    """The runs of a store, and the points of each series among them."""

    runs: RunColumns
    points: Mapping[HistorySeries, PointColumns]
