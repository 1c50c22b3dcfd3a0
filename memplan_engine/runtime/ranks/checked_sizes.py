"""What collectives take of each rank, held against the size of their group: a fake group looks at nothing."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from memplan_engine.errors import InputError
from memplan_engine.runtime.ranks.fake_meshes import Patch, everywhere
from memplan_engine.torch_capture.training.torch_origins import who_asks

LISTS = {
    "scatter": ("scatter_list",),
    "gather": ("gather_list",),
    "all_gather": ("tensor_list",),
    "reduce_scatter": ("input_list",),
    "all_to_all": ("output_tensor_list", "input_tensor_list"),
}
"""Of collectives the lists that have a tensor for each rank."""
WHOLES = {
    "all_gather_single": ("output_tensor", "input_tensor"),
    "reduce_scatter_single": ("input", "output"),
}
"""Of collectives the tensor of all ranks, and that of one."""


def size_checks() -> list[Patch]:
    """For `torch_fake.patched`: collectives that refuse what has another size than the group asks for."""
    patches: list[Patch] = []
    for name in (*LISTS, *WHOLES):
        call = vars(distributed_c10d)[name]
        patches += everywhere(name, call, _checked(name, call))
    return patches


def _checked(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    form = inspect.signature(call)

    @functools.wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = form.bind(*args, **kwargs).arguments
        group = given.get("group")
        if not distributed_c10d._rank_not_in_group(group):
            size = dist.get_world_size(group)
            for found, expected in _wrong(name, given, size):
                found = f"{found} for {name} among {size} ranks {who_asks()}"
                raise InputError("fake run", "", found, expected)
        return call(*args, **kwargs)

    return checked


def _wrong(name: str, given: dict[str, Any], size: int) -> Iterator[tuple[str, str]]:
    """What is wrong, and what should be there instead."""
    for argument in LISTS.get(name, ()):
        tensors = given.get(argument)
        if tensors and len(tensors) != size:
            yield f"{len(tensors)} tensors as {argument}", f"{size}, one of each rank"
    if name in WHOLES:
        whole, part = (given[argument].numel() for argument in WHOLES[name])
        if whole != part * size:
            wholes, parts = WHOLES[name]
            yield f"{whole:,} numbers as {wholes}", f"{part * size:,}, {size} times those of {parts}"
