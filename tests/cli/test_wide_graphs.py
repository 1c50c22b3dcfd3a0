"""Graphs that are wider than any model: an op of 20,000 outputs, 300 concatenations of up to 1,500 tensors,
20,000 kinds, 20,000 symbols. What looks at all pairs of them would not be through within a test's time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from memplan_engine.cli.app import run

MANY = 20_000
Json = dict[str, Any]


def graph(tensors: Sequence[Json], ops: Sequence[Json], output: str, **more: Any) -> Json:
    return {
        "format": "memplan/graph", "version": 1, "name": "wide", "inputs": ["x"], "outputs": [output],
        "tensors": [{"name": "x", "nbytes": 4}, *tensors], "ops": list(ops), **more,
    }  # fmt: skip


def op(name: str, kind: str, inputs: list[str], outputs: list[str]) -> Json:
    return {"name": name, "kind": kind, "inputs": inputs, "outputs": outputs}


def outputs() -> Json:
    names = [f"v{i}" for i in range(MANY)]
    return graph([{"name": name, "nbytes": 4} for name in names], [op("o", "k", ["x"], names)], "v1")


def concats() -> Json:
    def floats(name: str, count: int) -> Json:
        return {"name": name, "nbytes": 4 * count, "shape": [count], "dtype": "float32"}

    parts, wholes = range(1500), range(0, 1500, 5)
    return graph(
        [floats(f"v{i}", 1) for i in parts] + [floats(f"c{i}", i + 1) for i in wholes],
        [op(f"v{i}", "aten.relu", ["x"], [f"v{i}"]) for i in parts]
        + [op(f"c{i}", "aten.cat", [f"v{j}" for j in range(i + 1)], [f"c{i}"]) for i in wholes],
        "c0",
    )


def kinds() -> Json:
    names = ["x", *(f"v{i}" for i in range(MANY))]
    ops = [op(f"o{i}", f"kind{i}", [names[i]], [names[i + 1]]) for i in range(MANY)]
    return graph([{"name": name, "nbytes": 4} for name in names[1:]], ops, names[-1])


def symbols() -> Json:
    shape = {"name": "v", "nbytes": 8, "shape": [2], "dtype": "float32", "formulas": ["s0"]}
    ranges = [{"name": f"s{i}", "low": 1, "high": 9, "hint": 2} for i in range(MANY)]
    return graph([shape], [op("o", "k", ["x"], ["v"])], "v", symbols=ranges)


@pytest.mark.quarantine
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("made", "command"),
    [
        (outputs, ["reuse", "{}", "--strategy", "naive"]),
        (concats, ["plan", "{}", "--in-place", "--concat", "--strategy", "greedy_by_size"]),
        (kinds, ["report", "{}", "--svg", "{}.svg", "--strategy", "greedy_by_size"]),
        (symbols, ["buckets", "{}", "s0", "1,8", "--strategy", "greedy_by_size"]),
    ],
)
def test_wide_graphs(tmp_path: Path, made: Callable[[], Json], command: list[str]) -> None:
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(made()))
    assert run([part.format(path) for part in command]) == 0
