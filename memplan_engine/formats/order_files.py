"""Files of an order of ops: memplan/schedule JSON, CSV, and an ONNX model whose nodes are sorted by it."""

from __future__ import annotations

from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.formats.read_limits import read_text
from memplan_engine.graph import Graph
from memplan_engine.schedule import Schedule, by_steps

SUFFIXES = (".json", ".csv", ".onnx")
"""Those that an order is written to."""


def write_order(graph: Graph, path: Path | str, model: Path | str | None = None) -> None:
    """Write the order of the ops of `graph`, one op a step, atomically, as the suffix of `path` asks: .json,
    .csv with the columns op and step, or .onnx, the ONNX model `model` that `graph` was read from with its
    nodes sorted.

    Raises
    ------
    InputError: another suffix, .onnx for what is no ONNX model, what `onnx_order` refuses, a place that
        cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() == ".onnx":
        if model is None:
            expected = ".json or .csv, or a model that is read from an ONNX file"
            raise InputError(str(path), "", "the suffix '.onnx'", expected)
        from memplan_engine.formats.onnx_model.onnx_order import write_sorted_model

        write_sorted_model(Path(model), graph, path)
    elif path.suffix.lower() == ".csv":
        from memplan_engine.formats.csv_tables.csv_order import write_csv_order

        write_csv_order([op.name for op in graph.ops], path)
    elif path.suffix.lower() == ".json":
        from memplan_engine.formats.memplan_json.schedule_format import write_json_order

        write_json_order(graph, path)
    else:
        raise InputError(str(path), "", f"the suffix {path.suffix.lower()!r}", " or ".join(SUFFIXES))


def load_schedule(path: Path | str, graph: Graph) -> Schedule:
    """The schedule of `graph` in the file `path`: memplan/schedule JSON, or CSV with the columns op and step
    where the name ends in .csv.

    Raises
    ------
    InputError: no such file, no schedule, or one that `graph` cannot run by.
    """
    path = Path(path)
    text = read_text(path)
    if path.suffix.lower() == ".csv":
        from memplan_engine.formats.csv_tables.csv_order import steps_from_csv

        return by_steps(graph, steps_from_csv(text, path.name), path.name)
    from memplan_engine.formats.memplan_json.schedule_format import schedule_from_text

    return schedule_from_text(text, graph, path.name)
