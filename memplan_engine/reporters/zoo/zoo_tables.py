"""What became of each variant of a zoo: as plain values for machines, as Rich renderables for people."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from memplan_engine.history.history_values import NewPoint
from memplan_engine.reporters.rich_tables import MOST_ROWS, make_table, more, numbers, plain_text
from memplan_engine.units import count_of, format_bytes, format_signed
from memplan_engine.zoo.matrix import needed_bytes
from memplan_engine.zoo.zoo_run import Outcome, ZooResult


def zoo_summary(result: ZooResult) -> dict[str, Any]:
    """For machines: the run of the store, and all variants in the order of the manifest, each with the
    figures of its points, bytes, and the reasons of what failed."""
    manifest = result.manifest
    return {
        "complete": result.complete,
        "project": result.run.project,
        "commit": result.run.commit,
        "run": result.run.key,
        "capacity": manifest.capacity,
        "device": manifest.device,
        "variants": [_variant(each, manifest.capacity) for each in result.outcomes],
        "remarks": list(result.remarks),
    }


def _variant(outcome: Outcome, capacity: int | None) -> dict[str, Any]:
    return {
        "model": outcome.variant.model,
        "axes": dict(outcome.variant.axes),
        "cached": outcome.cached,
        "points": [_point(each, capacity) for each in outcome.points],
        "failures": [{"strategy": strategy, "reason": why} for strategy, why in outcome.failures],
    }


def _point(point: NewPoint, capacity: int | None) -> dict[str, Any]:
    figures, needed = point.figures, needed_bytes(point.figures)
    return {
        "variant": point.series.variant,
        "strategy": point.series.strategy,
        "arena": figures.arena,
        "demand": figures.demand,
        "bound": figures.bound,
        "weights": figures.weights,
        "temporaries": figures.temporaries,
        "reserved": figures.reserved,
        "needed": needed,
        "over": None if capacity is None else needed - capacity,
        "graph": point.fingerprints.graph,
    }


def zoo_tables(result: ZooResult, every_row: bool = False) -> list[RenderableType]:
    """For people: a row for each point, one for each strategy that failed, and what it comes to."""
    capacity = result.manifest.capacity
    rows = [row for outcome in result.outcomes for row in _rows(outcome, capacity)]
    shown = rows if every_row else rows[:MOST_ROWS]
    columns = ["model", "variant", "strategy", *numbers("arena", "weights", "needed")]
    if capacity is not None:
        columns += numbers("over capacity")
    table = make_table(columns, shown, rest=more(rows, shown))
    return [table, plain_text(zoo_sentence(result))]


def _rows(outcome: Outcome, capacity: int | None) -> list[tuple[str, ...]]:
    rows = []
    for point in outcome.points:
        figures, needed = point.figures, needed_bytes(point.figures)
        row = (
            point.series.model,
            point.series.variant,
            point.series.strategy,
            *map(format_bytes, (figures.arena, figures.weights, needed)),
        )
        rows.append(row if capacity is None else (*row, format_signed(needed - capacity)))
    rows += [
        (outcome.variant.model, outcome.variant.text, strategy or "all", "failed")
        for strategy, _ in outcome.failures
    ]
    return rows


def zoo_sentence(result: ZooResult) -> str:
    """ "12 variants of 3 models: 10 from the cache, 1 failed, 2 over 24 GiB"."""
    outcomes, manifest = result.outcomes, result.manifest
    total = len(manifest.variants)
    models = len({each.model for each in manifest.variants})
    parts = []
    if not result.complete:
        parts.append(f"ended after {len(outcomes):,}")
    if cached := sum(each.cached for each in outcomes):
        parts.append(f"{cached:,} from the cache")
    if result.failed:
        parts.append(f"{len(result.failed):,} failed")
    if manifest.capacity is not None:
        over = sum(
            any(needed_bytes(point.figures) > manifest.capacity for point in each.points) for each in outcomes
        )
        named = f" ({manifest.device})" if manifest.device else ""
        parts.append(f"{over:,} over {format_bytes(manifest.capacity)}{named}")
    told = f": {', '.join(parts)}" if parts else ""
    return f"{count_of(total, 'variant')} of {count_of(models, 'model')}{told}"
