"""Graphs whose tensors are numbered as a tracer numbers them: an op inserted at the front renames all that
follow. What stands for what is known from their identities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from memplan_engine.graph import Graph, Op, Source
from memplan_engine.problem import Problem
from tests.support.graphs import make_graph


@dataclass(frozen=True)
class Node:
    """One op, known as `id` whatever it is called in a graph."""

    id: str
    kind: str
    size: int
    reads: tuple[str, ...] = ()
    module: str = ""


def traced(nodes: Iterable[Node], modules: bool = True, name: str = "net") -> tuple[Graph, dict[str, str]]:
    """The graph, and the id of each node by the name that its tensor has there: add, add_1, add_2 …"""
    seen: dict[str, int] = {}
    names: dict[str, str] = {}
    ops, sizes = [], {"x": 8}
    for line, node in enumerate(nodes, 1):
        number = seen[node.kind] = seen.get(node.kind, -1) + 1
        label = names[node.id] = f"{node.kind}_{number}" if number else node.kind
        sizes[label] = node.size
        reads = tuple(names[read] for read in node.reads if read in names) or ("x",)
        source = Source("model.py", line, f"{label} = …")
        ops.append(Op(label, node.kind, reads, (label,), module=node.module * modules, source=source))
    graph = make_graph(ops, sizes, inputs=("x",), outputs=ops[-1].outputs)
    return replace(graph, name=name), {label: node for node, label in names.items()}


def transformer(layers: int, width: int = 64) -> list[Node]:
    """A transformer, op by op."""
    nodes = [Node("embedding", "embedding", width, (), "embed")]

    def add(kind: str, layer: int, part: str, size: int, *reads: str) -> str:
        nodes.append(Node(f"{layer}.{part}", kind, size, reads, f"layers.{layer}.{part.split('.')[0]}"))
        return nodes[-1].id

    x = "embedding"
    for layer in range(layers):
        norm = add("layer_norm", layer, "norm1", width, x)
        q, k, v = (add("linear", layer, part, width, norm) for part in ("q", "k", "v"))
        scores = add("matmul", layer, "attention.scores", 4 * width, q, k)
        weights = add("softmax", layer, "attention.weights", 4 * width, scores)
        mixed = add("matmul", layer, "attention.mixed", width, weights, v)
        x = add("add", layer, "sum1", width, x, add("linear", layer, "o", width, mixed))
        norm = add("layer_norm", layer, "norm2", width, x)
        wide = add("gelu", layer, "act", 4 * width, add("linear", layer, "up", 4 * width, norm))
        x = add("add", layer, "sum2", width, x, add("linear", layer, "down", width, wide))
    return nodes


def doubled(nodes: Iterable[Node]) -> list[Node]:
    """The same with every size twice as large."""
    return [replace(node, size=2 * node.size) for node in nodes]


def right_pairs(
    problems: tuple[Problem, Problem], ids: tuple[dict[str, str], dict[str, str]], head_of: Iterable[int]
) -> tuple[int, int]:
    """How many matches are of the same node, and how many there are."""
    pairs = [(base, head) for base, head in enumerate(head_of) if head >= 0]
    names = [(problems[0].names[base], problems[1].names[head]) for base, head in pairs]
    return sum(ids[0][base] == ids[1][head] for base, head in names), len(names)
