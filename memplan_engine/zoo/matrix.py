"""The models of a zoo against their variants, held against a capacity: what the page and the tables show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from memplan_engine.history.history_values import Fingerprints, HistoryFigures, HistoryPoint, HistorySeries

_PARTS = re.compile(r"(\d+)")


def needed_bytes(figures: HistoryFigures) -> int:
    """What a device has to have for a point, bytes: what the allocator of its run reserved where there was a
    run, else weights and state, the arena, and what ops hold beside it."""
    if figures.reserved is not None:
        return figures.reserved
    return figures.weights + figures.arena + figures.temporaries


@dataclass(frozen=True, slots=True)
class ZooCell:
    """The latest point of a model's variant by the strategy that needs least: its series and figures, the
    digest of its graph ("" for none), and how many bytes it needs."""

    series: HistorySeries
    figures: HistoryFigures
    fingerprints: Fingerprints
    needed: int

    def over(self, capacity: int | None) -> int | None:
        """By how many bytes it is over `capacity`, negative for what is left; None without one."""
        return None if capacity is None else self.needed - capacity


@dataclass(frozen=True, slots=True)
class ZooMatrix:
    """Cells by model and variant. `models` stand in the order of their names, `variants` in that of the
    values of their axes: batch=8 before batch=32."""

    models: tuple[str, ...]
    variants: tuple[str, ...]
    cells: dict[tuple[str, str], ZooCell]

    def fullest(self, model: str) -> int:
        """The most bytes that a variant of `model` needs."""
        return max(cell.needed for (name, _), cell in self.cells.items() if name == model)

    def over(self, capacity: int | None) -> tuple[ZooCell, ...]:
        """The cells that are over `capacity`."""
        return tuple(cell for cell in self.cells.values() if (cell.over(capacity) or 0) > 0)


def zoo_matrix(points: Iterable[HistoryPoint], strategy: str = "") -> ZooMatrix:
    """The latest of `points` in each series, by model and variant; of several strategies, or options, the one
    that needs least, or those of `strategy` alone."""
    latest: dict[HistorySeries, HistoryPoint] = {}
    for point in sorted(points, key=lambda each: each.number):
        if strategy in ("", point.series.strategy):
            latest[point.series] = point
    cells: dict[tuple[str, str], ZooCell] = {}
    for series, point in latest.items():
        place = series.model, series.variant
        cell = ZooCell(series, point.figures, point.fingerprints, needed_bytes(point.figures))
        if place not in cells or cell.needed < cells[place].needed:
            cells[place] = cell
    models = sorted({model for model, _ in cells}, key=natural)
    variants = sorted({variant for _, variant in cells}, key=natural)
    return ZooMatrix(tuple(models), tuple(variants), cells)


def natural(text: str) -> list[tuple[int, str]]:
    """A key by which "batch=8" comes before "batch=32"."""
    return [
        (int(part), "") if part.isdigit() and part.isascii() else (-1, part) for part in _PARTS.split(text)
    ]
