"""Graphs whose ops have no order at all: one line and exit code 2, wherever an order is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
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


def written(folder: Path, ops: list[dict[str, Any]]) -> Path:
    tensors = [{"name": name, "nbytes": 16, "shape": [4]} for name in ("x", "one", "seen")]
    graph = {"format": "memplan/graph", "version": 1, "name": "knot", "inputs": ["x"], "outputs": ["one"]}
    path = folder / "knot.json"
    path.write_text(json.dumps({**graph, "tensors": tensors, "ops": ops}))
    return path


@pytest.mark.parametrize("ops", [DATA, RANDOM_NUMBERS], ids=["data", "random numbers"])
@pytest.mark.parametrize("verb", [["plan", "--reorder"], ["plan", "--reorder", "--in-place"], ["fit"]])
def test_ops_that_cannot_be_ordered_are_one_line(
    tmp_path: Path, verb: list[str], ops: list[dict[str, Any]]
) -> None:
    path = written(tmp_path, ops)
    command = [sys.executable, "-c", "from memplan_engine.cli.main import main; main()"]
    ran = subprocess.run(
        [*command, verb[0], str(path), *verb[1:]], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1
    assert "knot.json: ops: found a cycle: first → second → first" in ran.stderr
