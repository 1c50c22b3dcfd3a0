"""Graphs that are wider than any model: an op of 20,000 outputs, 300 concatenations of up to 1,500 tensors,
20,000 kinds, 20,000 symbols. No verb may look at all pairs of them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from memplan_engine.cli.app import run
from tests import ROOT

Json = dict[str, Any]


def graph(tensors: Sequence[Json], ops: Sequence[Json], output: str, **more: Any) -> Json:
    return {
        "format": "memplan/graph", "version": 1, "name": "wide", "inputs": ["x"], "outputs": [output],
        "tensors": [{"name": "x", "nbytes": 4}, *tensors], "ops": list(ops), **more,
    }  # fmt: skip


def op(name: str, kind: str, inputs: list[str], outputs: list[str]) -> Json:
    return {"name": name, "kind": kind, "inputs": inputs, "outputs": outputs}


def outputs(many: int) -> Json:
    names = [f"v{i}" for i in range(many)]
    return graph([{"name": name, "nbytes": 4} for name in names], [op("o", "k", ["x"], names)], "v1")


def concats(many: int) -> Json:
    def floats(name: str, count: int) -> Json:
        return {"name": name, "nbytes": 4 * count, "shape": [count], "dtype": "float32"}

    parts, wholes = range(many), range(0, many, 5)
    return graph(
        [floats(f"v{i}", 1) for i in parts] + [floats(f"c{i}", i + 1) for i in wholes],
        [op(f"v{i}", "aten.relu", ["x"], [f"v{i}"]) for i in parts]
        + [op(f"c{i}", "aten.cat", [f"v{j}" for j in range(i + 1)], [f"c{i}"]) for i in wholes],
        "c0",
    )


def kinds(many: int) -> Json:
    names = ["x", *(f"v{i}" for i in range(many))]
    ops = [op(f"o{i}", f"kind{i}", [names[i]], [names[i + 1]]) for i in range(many)]
    return graph([{"name": name, "nbytes": 4} for name in names[1:]], ops, names[-1])


def symbols(many: int) -> Json:
    shape = {"name": "v", "nbytes": 8, "shape": [2], "dtype": "float32", "formulas": ["s0"]}
    ranges = [{"name": f"s{i}", "low": 1, "high": 9, "hint": 2} for i in range(many)]
    return graph([shape], [op("o", "k", ["x"], ["v"])], "v", symbols=ranges)


GROWING = [
    (outputs, 400, 20_000, "reuse {} --strategy naive"),
    (concats, 80, 1500, "plan {} --in-place --concat --strategy greedy_by_size"),
    (kinds, 400, 20_000, "report {} --svg {}.svg --strategy greedy_by_size"),
    (symbols, 400, 20_000, "buckets {} s0 1,8 --strategy greedy_by_size"),
]
"""A function that makes a graph, a size at which each line run is counted, a size no model has, a verb."""


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Give the number of lines of the engine that run meanwhile, in this thread and in new ones."""
    count, engine = [0], str(ROOT / "memplan_engine")

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        count[0] += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(engine) else None

    before = sys.gettrace(), threading.gettrace()
    sys.settrace(on_call)
    threading.settrace(on_call)
    try:
        yield count
    finally:
        sys.settrace(before[0])
        threading.settrace(before[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(("make", "many", "_", "line"), GROWING)
def test_twice_as_wide_is_twice_the_work(
    tmp_path: Path, make: Callable[[int], Json], many: int, _: int, line: str
) -> None:
    def lines_for(size: int) -> int:
        path.write_text(json.dumps(make(size)))
        with counted_lines() as count:
            assert run(line.format(path, path).split()) == 0
        return count[0]

    path = tmp_path / "wide.json"
    path.write_text(json.dumps(make(many // 8)))
    # What is imported, compiled or kept is so after the first time.
    assert run(line.format(path, path).split()) == 0
    inputs = [
        sum(len(op["inputs"]) + len(op["outputs"]) for op in make(size)["ops"]) for size in (many, 2 * many)
    ]
    growth = max(2.0, inputs[1] / inputs[0])
    # One line for each pair would make it more.
    assert lines_for(2 * many) < 1.05 * growth * lines_for(many)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "_", "many", "line"), GROWING)
def test_wider_than_any_model(
    tmp_path: Path, make: Callable[[int], Json], _: int, many: int, line: str
) -> None:
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(make(many)))
    assert run(line.format(path, path).split()) == 0
