"""One node that shall write into the slab: what it was called with, and what it is replaced by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from memplan_engine.torch_capture.torch_operators import arguments_of


class Asked:
    """The call of an operator, by the names of its arguments: `given` holds nodes and plain values, defaults
    included."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.given = arguments_of(node.target, node.args, node.kwargs, defaults=True)

    @property
    def result(self) -> torch.Tensor:
        """What the node gave when it was captured (a fake tensor), the first of several results."""
        value = self.node.meta["val"]
        result: torch.Tensor = value if isinstance(value, torch.Tensor) else value[0]
        return result

    def tensor(self, name: str) -> torch.Tensor:
        """The argument `name` as it was captured (a fake tensor)."""
        value: torch.Tensor = self.given[name].meta["val"]
        return value

    def is_tensor(self, name: str) -> bool:
        """Whether the argument `name` is a tensor that some node gives."""
        value = self.given.get(name)
        return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


@dataclass(slots=True)
class Site:
    """Where the nodes that replace one are made: at the end of `graph`. `place(result, size, strides, after)`
    makes the view of the slab for one of the node's results, laid out as captured unless told otherwise.
    `shared` holds nodes that several sites use."""

    asked: Asked
    graph: Graph
    env: Mapping[Node, Node]
    place: Callable[[int, Sequence[int] | None, Sequence[int] | None, Sequence[Node]], Node]
    shared: dict[Any, Node]

    def given(self, name: str) -> Any:
        """The argument `name`, with nodes of the new graph."""
        return map_arg(self.asked.given[name], lambda node: self.env[node])

    def memory(
        self,
        size: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        *,
        result: int = 0,
        after: Sequence[Node] = (),
    ) -> Node:
        """The node's place in the slab, as a tensor of this size and these strides."""
        return self.place(result, size, strides, after)

    def empty(self, dtype: torch.dtype, device: torch.device) -> Node:
        """A tensor without elements, one for all of its kind."""
        if (dtype, device) not in self.shared:
            target = torch.ops.aten.empty.memory_format
            self.shared[dtype, device] = self.call(target, [0], dtype=dtype, device=device)
        return self.shared[dtype, device]

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A new node."""
        return self.graph.call_function(target, args, kwargs)
