"""The process of a variant: it captures the model and plans its graphs, in a fork of a process that has
imported all that this takes (`runtime.scripts.host`), so that no model finds what another one has left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

# Every capture asks for it.
import torch._dynamo

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.files import ImportOptions, load, recognise
from memplan_engine.graph import Graph
from memplan_engine.history.measuring import measure_graph
from memplan_engine.symbolic.symbolic_problem import resolve
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.torch_factory import capture_factory, capture_training_factory
from memplan_engine.torch_capture.torch_source import located, source_of_error
from memplan_engine.zoo.carried import ANSWER, TASK
from memplan_engine.zoo.planning import failed, graph_of, planned
from memplan_engine.zoo.variant_runs import ANSWERED, ASKED
from memplan_engine.zoo.zoo_values import Origin, ZooAnswer, ZooTask


def main(folder: Path) -> None:
    """Do the task that `folder` asks for, and leave the answer there."""
    task = TASK.read((folder / ASKED).read_bytes())
    assert task is not None
    os.chdir(task.folder)
    half = folder / "half"
    half.write_bytes(ANSWER.written(_answer(task)))
    half.rename(folder / ANSWERED)


def _answer(task: ZooTask) -> ZooAnswer:
    graphs = task.graphs
    if not graphs:
        try:
            graphs = (graph_of(_capture(task.variant.origin)),)
        except MemplanError as error:
            return failed(_with_line(error))
    return planned(task, graphs, known=bool(task.graphs))


def _capture(origin: Origin) -> Graph:
    if origin.file:
        return _read(Path(origin.file), dict(origin.symbols))
    options: dict[str, Any] = dict(origin.options)
    if not origin.training:
        return capture_factory(origin.factory, **options)
    return capture_training_factory(origin.factory, origin.training, **options)


def _read(path: Path, symbols: dict[str, int]) -> Graph:
    dims = symbols if recognise(path).binds_dimensions else {}
    graph = load(path, ImportOptions(dims=dims))
    if not isinstance(graph, Graph):
        raise InputError(path.name, "", "buffers without a graph", "a graph")
    return resolve(graph, symbols) if symbols and not dims else graph


def _with_line(error: MemplanError) -> str:
    """What went wrong, with the line of the user's code that it went through."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    line = source_of_error(cause)
    if line is None or not isinstance(error, InputError) or str(line) in str(error):
        return str(error)
    return str(InputError(error.source, error.place, located(error.found, cause), error.expected))


def _get_ready() -> None:
    """Have done what the first capture and the first plan of a process take beyond later ones, most of it
    imports. The cores are shared out among processes, and threads would not outlive a fork."""
    torch.set_num_threads(1)
    with torch.device("meta"):
        layer, batch = torch.nn.Linear(2, 2), torch.zeros(1, 2)
    measure_graph(capture(layer, (batch,)))


_get_ready()
