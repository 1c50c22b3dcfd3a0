"""The models against their variants: which point stands for a cell, and what it needs."""

from __future__ import annotations

from memplan_engine.history.history_values import (
    Fingerprints,
    HistoryFigures,
    HistoryPoint,
    HistoryRun,
    HistorySeries,
)
from memplan_engine.zoo.matrix import needed_bytes, zoo_matrix

FIGURES = HistoryFigures(arena=100, demand=90, bound=90, bound_kind="load", weights=1000, temporaries=7)


def point(number: int, model: str, variant: str, arena: int, strategy: str = "auto") -> HistoryPoint:
    figures = HistoryFigures(arena, arena, arena, "load", weights=10)
    series = HistorySeries("shop", model, variant, strategy)
    return HistoryPoint(number, HistoryRun("shop"), series, figures, Fingerprints(graph=f"g{number}"))


def test_what_is_needed_is_all_of_a_layout_or_what_a_run_reserved() -> None:
    assert needed_bytes(FIGURES) == 1107
    assert needed_bytes(HistoryFigures(100, 90, 90, "load", weights=1000, reserved=4096)) == 4096


def test_a_cell_is_the_latest_point_by_the_strategy_that_needs_least() -> None:
    points = [
        point(4, "net", "batch=32", 300),
        point(1, "net", "batch=8", 100),
        point(3, "net", "batch=8", 120),
        point(2, "net", "batch=8", 110, "naive"),
        point(5, "big", "batch=8", 500),
    ]
    matrix = zoo_matrix(points)
    assert matrix.models == ("big", "net")
    assert matrix.variants == ("batch=8", "batch=32")
    assert {place: (cell.needed, cell.series.strategy) for place, cell in matrix.cells.items()} == {
        ("net", "batch=8"): (120, "naive"),
        ("net", "batch=32"): (310, "auto"),
        ("big", "batch=8"): (510, "auto"),
    }
    assert matrix.cells["net", "batch=8"].fingerprints.graph == "g2"
    assert zoo_matrix(points, "auto").cells["net", "batch=8"].needed == 130
    assert zoo_matrix(points, "naive").models == ("net",)
    assert (matrix.fullest("net"), matrix.fullest("big")) == (310, 510)


def test_over_is_beyond_the_capacity_to_the_byte() -> None:
    matrix = zoo_matrix([point(1, "net", "", 100), point(2, "net", "batch=8", 101)])
    assert [cell.over(111) for cell in matrix.cells.values()] == [-1, 0]
    assert matrix.over(111) == ()
    assert [cell.needed for cell in matrix.over(110)] == [111]
    assert matrix.over(None) == ()
    assert matrix.cells["net", ""].over(None) is None
