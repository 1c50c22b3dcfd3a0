"""What reuse saves: the figures of the docs, worked out anew, and the tables for CLI and dashboard."""

from __future__ import annotations

import re

import pytest

from memplan_engine import SolveLimits, load
from memplan_engine.graph import Graph
from memplan_engine.rewrites.reuse import (
    Reason,
    kept_table,
    reasons,
    reuse,
    rewrites_table,
    savings,
    savings_table,
)
from tests import ROOT
from tests.rewrites.reuse_graphs import Builder

ROWS = re.findall(r"^\| `(.+)` \| (.*) \|$", (ROOT / "docs" / "in_place.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("name", "figures"), ROWS, ids=[name for name, _ in ROWS])
def test_the_table_of_the_docs(name: str, figures: str) -> None:
    graph = load(str(ROOT / "example_graphs" / name))
    assert isinstance(graph, Graph)
    before, in_place, concat, both = savings(graph, limits=SolveLimits(nodes=100_000))
    cells = [cell.strip().replace(",", "") for cell in figures.split("|")]
    shown = [*(int(cell) for cell in cells[:4]), int(cells[5]), int(cells[6])]
    found = [before.arena, in_place.arena, in_place.bound, both.arena, in_place.ops, concat.ops]
    assert shown == found
    assert cells[4].lstrip("-") == f"{1 - both.arena / before.arena:.1%}"


def small() -> Graph:
    net = Builder()
    net.input("x", 1, 4)
    net.op("conv", "x", "a", 1, 4)
    net.op("relu", "a", "b", 1, 4)
    net.op("relu", "x", "c", 1, 4)
    net.op("cat", "b c", "y", 1, 8)
    return net.graph("y")


def test_savings_by_hand() -> None:
    """As it is: b, c and y, 64 bytes, at step 3. In place a and b are one, and that is not the peak. With
    b and c inside y, a (steps 0 and 1) lies in the half of y where c will be (from step 2 on)."""
    rows = savings(small(), limits=SolveLimits(nodes=1_000), alignment=16)
    assert [(row.name, row.peak, row.bound, row.arena, row.ops, row.nbytes) for row in rows] == [
        ("baseline", 64, 64, 64, 0, 0),
        ("in place", 64, 64, 64, 1, 16),
        ("concat", 32, 32, 32, 1, 32),
        ("both", 32, 32, 32, 2, 48),
    ]
    assert savings_table(rows)[-1] == {
        "way": "both", "arena_bytes": 32, "bound_bytes": 32, "peak_bytes": 32, "saved_bytes": 32, "ops": 2,
        "reused_bytes": 48,
    }  # fmt: skip


def test_tables_name_every_op_and_reason() -> None:
    reused = reuse(small(), alignment=16)
    assert [
        (row["op"], row["way"], row["tensor"], row["at"], row["bytes"]) for row in rewrites_table(reused)
    ] == [
        ("b!", "in place", "a", 0, 16),
        ("y!", "concat", "b", 0, 16),
        ("y!", "concat", "c", 16, 16),
    ]
    assert kept_table(reused) == [
        {
            "op": "c!", "kind": "relu", "step": 2, "tensor": "x", "output": "c", "bytes": 16,
            "reason": "the graph's input belongs to the caller", "other": "",
        }
    ]  # fmt: skip
    assert reasons(reused) == {Reason.INPUT: 1}
    assert str(reused.kept[0]) == "c!: x: the graph's input belongs to the caller"


def test_nothing_asked_for_changes_nothing() -> None:
    graph = small()
    assert reuse(graph, in_place=False, concat=False).graph is graph
