"""What the dashboard and its solver processes say to each other: JSON and columns of int64, nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.problem import Gap, Ints, Problem, make_problem

COLUMNS = ("start", "end", "size", "alignment", "fixed")
LENGTH_BYTES = 8


def write_message(
    stream: IO[bytes], values: Mapping[str, Any], arrays: Mapping[str, Ints] | None = None
) -> None:
    """Send `values` (what JSON can hold) and `arrays` (int64).

    Layout: length of the header (8 bytes, little-endian), the header, the arrays in its order as raw int64.
    Raises OSError when nobody is left to read.
    """
    arrays = arrays or {}
    header = {"values": dict(values), "arrays": {key: len(array) for key, array in arrays.items()}}
    text = json.dumps(header, separators=(",", ":")).encode()
    columns = (np.ascontiguousarray(array, dtype="<i8").tobytes() for array in arrays.values())
    stream.write(b"".join((len(text).to_bytes(LENGTH_BYTES, "little"), text, *columns)))
    stream.flush()


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, Ints]]:
    """The next message; raises EOFError when the other side is gone."""
    header = json.loads(_exactly(stream, int.from_bytes(_exactly(stream, LENGTH_BYTES), "little")))
    arrays = {
        key: np.frombuffer(_exactly(stream, 8 * count), dtype="<i8").astype(np.int64)
        for key, count in header["arrays"].items()
    }
    return header["values"], arrays


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def problem_message(problem: Problem) -> tuple[dict[str, Any], dict[str, Ints]]:
    """`problem` as values and arrays; the graph behind it stays here."""
    gaps = [(row, g.start, g.end, g.low, g.high) for row, several in problem.gaps.items() for g in several]
    values = {"name": problem.name, "names": problem.names, "steps": problem.steps}
    columns = {key: getattr(problem, key) for key in COLUMNS}
    return values, {**columns, "gaps": np.array(gaps, dtype=np.int64).reshape(-1)}


def read_problem(values: dict[str, Any], arrays: dict[str, Ints]) -> Problem:
    """The problem that `problem_message` has taken apart."""
    gaps: dict[int, tuple[Gap, ...]] = {}
    for row, *gap in arrays["gaps"].reshape(-1, 5).tolist():
        gaps[row] = (*gaps.get(row, ()), Gap(*gap))
    columns: dict[str, Any] = {key: arrays[key] for key in COLUMNS}
    columns |= {key: values[key] for key in ("name", "names", "steps")}
    return make_problem(**columns, gaps=gaps)


def bound_values(bound: Bound | None) -> dict[str, Any] | None:
    """`bound` as JSON can hold it."""
    return None if bound is None else asdict(bound)


def read_bound(values: dict[str, Any] | None) -> Bound | None:
    """The bound that `bound_values` has taken apart."""
    if values is None:
        return None
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    return Bound(**{**fields, "kind": BoundKind(fields["kind"])})
