"""Every number of every file at and beyond what 64 bits hold: an answer or an error in one line, never
more."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from memplan_examples import PATH

from memplan_engine import Graph, InputError, MemplanError, Plan, load, load_observation, load_run, make_plan
from memplan_engine.bounds import lower_bound
from memplan_engine.formats.memplan_json.edits_format import load_edits
from memplan_engine.formats.order_files import load_schedule
from memplan_engine.lifetimes import to_problem
from memplan_engine.verify.validate import validate_plan
from tests import ROOT

SEEDS = ROOT / "tests" / "fuzzing" / "seeds"
M = 2**63 - 1
HUGE = (M, M - 1, 2**62, 2**63, -1, -(2**63), 10**30, 10**400, 1.5, float("nan"), float("inf"), -0.0, True)
PROBLEM = {
    "format": "memplan/problem", "version": 1, "steps": 9, "start": [0, 2], "end": [3, 8], "size": [8, 16],
    "alignment": [4, 8], "fixed": [None, 16],
    "gaps": [{"buffer": 1, "start": 3, "end": 5, "low": 0, "high": 4}],
    "callers": {"frames": [{"function": "f", "file": "f.py", "line": 3}], "stacks": [[0]], "stack": [0, -1]},
}  # fmt: skip
PLAN = {
    "format": "memplan/plan", "version": 1, "strategy": "naive", "parameters": {"x": 1}, "arena_bytes": 24,
    "bound": {"nbytes": 24, "kind": "load", "step": 2}, "seconds": 0.5, "offsets": [16, 0],
    "problem": {"start": [0, 2], "end": [3, 8], "size": [8, 16]},
}  # fmt: skip
GRAPH = {
    "format": "memplan/graph", "version": 1, "name": "g", "inputs": ["x"], "outputs": ["y"],
    "symbols": [{"name": "n", "low": 1, "high": 9, "hint": 2}],
    "storages": [{"name": "x", "nbytes": 16, "alignment": 8}, {"name": "y", "nbytes": 16}],
    "tensors": [
        {"name": "x", "shape": [2, 2], "dtype": "float32", "nbytes": 16, "strides": [2, 1], "offset": 0,
         "storage": "x"},
        {"name": "y", "shape": [2, 2], "dtype": "float32", "nbytes": 16, "storage": "y"},
    ],
    "ops": [{"name": "op", "kind": "k", "inputs": ["x"], "outputs": ["y"]}],
}  # fmt: skip
OBSERVATION = {
    "format": "memplan/observation", "version": 1, "nanoseconds": 5,
    "ops": {"names": ["a", "b"], "kinds": ["k", "k"], "begin": [0, 2], "end": [1, 3], "stack": [0, -1]},
    "levels": {"allocator": {
        "time": [0, 1], "size": [8, -8], "address": [64, 64], "op": [0, 1], "inside": [1, 1],
        "kernel": [0, -1], "device": [-1, -1],
    }},
    "kernels": ["k"], "frames": [{"function": "f", "file": "f.py", "line": 3}], "stacks": [[0]],
}  # fmt: skip
RUN = {
    "format": "memplan/run", "version": 1, "name": "r", "ops": ["a"], "kinds": ["k"], "predicted": [8],
    "dispatch": [8], "allocator": [8], "temporaries": [{"op": "a", "bytes": 4, "inside_bytes": 2}],
    "plan": {"strategy": "naive", "arena_bytes": 8, "bound_bytes": 8},
    "equality": {"reference": "eager", "exact": False, "largest": 0.5},
    "check": {"ops": 1, "compared_bytes": 8, "arena_bytes": 8, "guard": 8},
}  # fmt: skip
EDITS = {
    "format": "memplan/edits", "version": 1,
    "edits": [
        {"kind": "pin", "buffer": "a", "offset": 4}, {"kind": "resize", "buffer": "a", "nbytes": 4},
        {"kind": "split", "buffer": "a", "parts": 2}, {"kind": "align", "buffer": "a", "alignment": 8},
        {"kind": "lifetime", "buffer": "a", "start": 0, "end": 2},
    ],
}  # fmt: skip
STEPS = {op.name: step for step, op in enumerate(load(PATH / "teaching_view.json").ops)}
SCHEDULE = {"format": "memplan/schedule", "version": 1, "steps": STEPS}


def opened(path: Path) -> None:
    """Load it, and do with it what every page does."""
    value = load(path)
    if isinstance(value, Plan):
        validate_plan(value)
    problem = to_problem(value) if isinstance(value, Graph) else getattr(value, "problem", value)
    lower_bound(problem)
    make_plan(problem, "greedy_by_size")


def observed(path: Path) -> None:
    load_observation(path)
    load_run(path)
    opened(path)


def scheduled(path: Path) -> None:
    load_schedule(path, load(PATH / "teaching_view.json"))


FLOW = json.loads((SEEDS / "observation2.json").read_text())
FILES: dict[str, tuple[dict[str, Any], Callable[[Path], object]]] = {
    "problem": (PROBLEM, opened),
    "plan": (PLAN, opened),
    "graph": (GRAPH, opened),
    "observation": (OBSERVATION, observed),
    "flow": (FLOW, observed),
    "run": (RUN, load_run),
    "edits": (EDITS, load_edits),
    "schedule": (SCHEDULE, scheduled),
}


def numbers(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of the numbers in a file; of a list, those in its first and last element."""
    if isinstance(value, dict | list):
        inside = list(value.items() if isinstance(value, dict) else enumerate(value))
        for key, inner in inside if isinstance(value, dict) else inside[:1] + inside[1:][-1:]:
            yield from numbers(inner, (*at, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield at


@pytest.mark.parametrize("kind", FILES)
def test_every_number_of_our_own_files(tmp_path: Path, kind: str) -> None:
    sound, read = FILES[kind]
    path = tmp_path / f"{kind}.json"
    path.write_text(json.dumps(sound))
    read(path)
    for at in numbers(sound):
        for huge in HUGE:
            changed = json.loads(json.dumps(sound))
            inner = changed
            for key in at[:-1]:
                inner = inner[key]
            inner[at[-1]] = huge
            path.write_text(json.dumps(changed))
            try:
                read(path)
            except MemplanError:
                continue
            except Exception as error:
                raise AssertionError(f"{at} = {huge}: {error!r}") from error


@pytest.mark.parametrize("column", ["lower", "upper", "end", "size", "alignment", "offset", "gaps"])
@pytest.mark.parametrize("huge", [*HUGE, "0" * 5000 + "1", "9" * 5000])
def test_every_number_of_a_list(tmp_path: Path, column: str, huge: object) -> None:
    row = {"id": "a", "lower": "0", "upper": "9", "size": "8"}
    if column == "end":
        del row["upper"]
    row[column] = f"{huge}-{huge}@{huge}:{huge}" if column == "gaps" else str(huge)
    path = tmp_path / "a.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    with contextlib.suppress(MemplanError):
        opened(path)


def test_an_observation_that_frees_more_than_it_allocated(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    changed = json.loads(json.dumps(OBSERVATION))
    changed["levels"]["allocator"]["size"] = [8, -9]
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError) as caught:
        load_run(path)
    told = "field levels.allocator.size[1]: found 9 bytes freed, expected the 8 allocated there"
    assert str(caught.value) == f"seen.json: {told}"
    # Of memory that was there before the run any may be freed.
    changed["levels"]["allocator"] |= {"size": [-9, 8]}
    path.write_text(json.dumps(changed))
    assert load_run(path).allocator == (0, 8)


def test_the_longest_text_and_the_most_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "g.json"

    def told(tensor: dict[str, Any]) -> str:
        changed = json.loads(json.dumps(GRAPH))
        changed["tensors"][0] |= tensor
        path.write_text(json.dumps(changed))
        try:
            load(path)
        except InputError as error:
            return str(error)
        return ""

    assert told({"dtype": "d" * 10_000}) == ""
    assert told({"dtype": "d" * 10_001}) == (
        "g.json: field tensors[0].dtype: found a longer text, expected at most 10,000 characters"
    )
    assert told({"shape": [2, 2] + [1] * 62, "strides": [2, 1] + [1] * 62}) == ""
    assert told({"shape": [1] * 65}) == "g.json: field tensors[0].shape: found 65 values, expected at most 64"
    assert told({"strides": [1] * 65}).startswith("g.json: field tensors[0].strides: found 65 values")
