"""Graphs of a variant → its points, by each strategy that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memplan_engine.errors import MemplanError
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.graph import Graph
from memplan_engine.history.graph_blobs import digest_of, graph_from_json
from memplan_engine.history.measuring import measure_graph
from memplan_engine.zoo.zoo_values import Variant, ZooAnswer, ZooGraph, ZooTask, axes_text


def graph_of(graph: Graph, rank: str = "", eager: int | None = None, reserved: int | None = None) -> ZooGraph:
    """`graph` as it is carried."""
    data = dumps(graph)
    return ZooGraph(digest_of(data), data, rank, eager, reserved)


def failed(why: str, strategy: str = "") -> ZooAnswer:
    """The answer of a task that came to nothing, by `strategy` or, "", by any."""
    return ZooAnswer(failures=((strategy, why),))


def variant_text(variant: Variant, graph: ZooGraph) -> str:
    """The variant of the series that has the points of `graph`."""
    return axes_text((*variant.axes, *((("rank", graph.rank),) if graph.rank else ())))


def planned(task: ZooTask, graphs: Sequence[ZooGraph], known: bool = False) -> ZooAnswer:
    """The points of `graphs`, which were `known` to who asks; a strategy that fails has the reason."""
    points, failures = [], []
    loaded = [graph_from_json(graph.json, task.variant.label) for graph in graphs]
    for strategy in task.strategies:
        try:
            for graph, value in zip(graphs, loaded, strict=True):
                point = measure_graph(
                    value,
                    project=task.project,
                    model=task.variant.model,
                    variant=variant_text(task.variant, graph),
                    strategy=strategy,
                    how=task.variant.how,
                    nodes=task.nodes,
                    seed=task.seed,
                )
                figures = replace(point.figures, eager=graph.eager, reserved=graph.reserved)
                points.append(replace(point, figures=figures, graph_json=b""))
        except MemplanError as error:
            failures.append((strategy, str(error)))
    return ZooAnswer(tuple(points), () if known else tuple(graphs), tuple(failures))
