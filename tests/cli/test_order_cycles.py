"""Graphs whose ops have no order at all: one line and exit code 2, wherever an order is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = [
    {"name": "first", "kind": "mix", "inputs": ["x", "seen"], "outputs": ["one"]},
    {"name": "second", "kind": "mix", "inputs": ["one"], "outputs": ["seen"]},
]
RANDOM_NUMBERS = [
    {"name": "first", "kind": "aten.rand", "inputs": ["seen"], "outputs": ["one"]},
    {"name": "second", "kind": "aten.rand", "inputs": ["one"], "outputs": ["seen"]},
]


@pytest.mark.parametrize("ops", [DATA, RANDOM_NUMBERS], ids=["data", "random numbers"])
@pytest.mark.parametrize("verb", [["plan", "--reorder"], ["plan", "--reorder", "--in-place"], ["fit"]])
def test_ops_that_cannot_be_ordered_are_one_line(
    memplan: Any, tmp_path: Path, verb: list[str], ops: list[dict[str, Any]]
) -> None:
    tensors = [{"name": name, "nbytes": 16, "shape": [4]} for name in ("x", "one", "seen")]
    graph = {"format": "memplan/graph", "version": 1, "name": "knot", "inputs": ["x"], "outputs": ["one"]}
    (tmp_path / "knot.json").write_text(json.dumps({**graph, "tensors": tensors, "ops": ops}))
    code, out, err = memplan(verb[0], "knot.json", *verb[1:])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "knot.json: ops: found a cycle: first → second → first" in err
