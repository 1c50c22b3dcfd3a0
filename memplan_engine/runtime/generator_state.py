"""Operators that keep the state of torch's random generator on the CPU and put it back, as
`torch.utils.checkpoint` does with `preserve_rng_state`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.op_kinds.generators import (
    GENERATOR_BYTES,
    KEEP_GENERATOR,
    PUT_GENERATOR_BACK,
    SET_GENERATOR,
)


@cache
def generator_operators() -> Mapping[str, Callable[..., Any]]:
    """By kind of op the operator that does it."""

    @torch.library.custom_op("memplan::keep_generator", mutates_args=(), schema="() -> Tensor")
    def keep_generator() -> torch.Tensor:
        return torch.get_rng_state()

    @torch.library.custom_op("memplan::set_generator", mutates_args=(), schema="(Tensor state) -> Tensor")
    def set_generator(state: torch.Tensor) -> torch.Tensor:
        before = torch.get_rng_state()
        put(state)
        return before

    @torch.library.custom_op("memplan::put_generator_back", mutates_args=(), schema="(Tensor state) -> ()")
    def put_generator_back(state: torch.Tensor) -> None:
        put(state)

    def put(state: torch.Tensor) -> None:
        # torch 2.13 adds the storage offset of a state twice, and reads what lies there.
        torch.set_rng_state(state.clone() if state.storage_offset() else state)

    def like_a_state(*state: torch.Tensor) -> torch.Tensor:
        return torch.empty(GENERATOR_BYTES, dtype=torch.uint8)

    keep_generator.register_fake(like_a_state)
    set_generator.register_fake(like_a_state)
    put_generator_back.register_fake(lambda state: None)
    operators: Any = torch.ops.memplan
    return {
        KEEP_GENERATOR: operators.keep_generator.default,
        SET_GENERATOR: operators.set_generator.default,
        PUT_GENERATOR_BACK: operators.put_generator_back.default,
    }


def check_repeatable(program: str, node: Node) -> None:
    """Raise InputError for a `node` that would not draw the same again from the state of the CPU's generator:
    one with a generator of its own, or on another device."""
    for each in pytree.tree_leaves((node.args, node.kwargs)):
        if isinstance(each, torch.Generator):
            found = "a draw from a generator of its own"
            raise InputError(program, node.name, found, "draws from torch's own, or --random keep")
    values = pytree.tree_leaves(node.meta.get("val"))
    devices = {each.device.type for each in values if isinstance(each, torch.Tensor)} - {"cpu"}
    if devices:
        found = f"a draw on {min(devices)}"
        expected = "a CPU: states of other generators are planned, and not run yet (--random keep)"
        raise InputError(program, node.name, found, expected)
