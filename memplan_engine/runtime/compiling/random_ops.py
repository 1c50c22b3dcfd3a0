"""Operators that draw random numbers in a traced graph: which these are, and as eager mode draws them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule

NEVER_DRAW = {"aten::_scaled_dot_product_flash_attention_for_cpu"}
"""Tagged by torch as if they did; of this one the CPU has no kernel that drops out."""


def drawing_nodes(module: GraphModule) -> frozenset[str]:
    """The nodes of `module`, by name, whose operators torch has tagged as taking from a random generator."""
    return frozenset(
        node.name
        for node in module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
        and node.target._schema.name not in NEVER_DRAW
    )


@cache
def as_eager_draws() -> dict[Any, Callable[..., Any]]:
    """By operator what AOTAutograd is to trace instead. Dropout in eager mode has `bernoulli_` fill a tensor
    with the strides of what is dropped out, in the order of memory; the functional `bernoulli` would fill a
    contiguous one, and other elements would be dropped."""

    @torch.library.custom_op(
        "memplan::bernoulli_like", mutates_args=(), schema="(Tensor self, float p) -> Tensor"
    )
    def bernoulli_like(self: torch.Tensor, p: float) -> torch.Tensor:
        return torch.empty_like(self).bernoulli_(p)

    bernoulli_like.register_fake(lambda self, p: torch.empty_like(self))

    def drawn(self: torch.Tensor, p: float, generator: Any = None) -> Any:
        return NotImplemented if generator is not None else torch.ops.memplan.bernoulli_like(self, p)

    return {torch.ops.aten.bernoulli.p: drawn}
