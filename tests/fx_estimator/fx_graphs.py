"""fx graphs written down by hand: every node knows its fake value, as after AOTAutograd."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg


class Writer:
    """Writes one graph. Sizes are given in elements; a float32 element has 4 bytes."""

    def __init__(self) -> None:
        self.graph, self.mode = Graph(), FakeTensorMode(allow_non_fake_inputs=True)

    def placeholder(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Node:
        node = self.graph.placeholder(name)
        with self.mode:
            node.meta["val"] = torch.empty(shape, dtype=dtype)
        return node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        values, keywords = map_arg((args, kwargs), lambda used: used.meta["val"])
        with self.mode:
            node.meta["val"] = target(*values, **keywords)
        return node

    def output(self, *nodes: Any) -> Graph:
        self.graph.output(nodes)
        return self.graph

    def module(self) -> GraphModule:
        return GraphModule(torch.nn.Module(), self.graph)


def real_inputs(graph: Graph) -> list[torch.Tensor]:
    """A real tensor for each placeholder."""
    values = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    return [torch.ones(value.shape, dtype=value.dtype) for value in values]
