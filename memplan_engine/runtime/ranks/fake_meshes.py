"""Meshes and layouts of a distributed run on fake tensors: which ranks there are is real, and what torch
works out of global shapes allocates nothing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import _functional_collectives, device_mesh, utils
from torch.distributed.fsdp import _common_utils
from torch.distributed.pipelining import _IR
from torch.distributed.pipelining import stage as stages
from torch.distributed.tensor import _ops, _random, _sharding_prop
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import _disable_current_modes

from memplan_engine.runtime.ranks.fake_layouts import ExpandedOnce, flagged_once

Patch = tuple[Any, str, Any]
OF_MESHES = (
    *("__init__", "__getitem__", "from_group", "get_group", "get_all_groups", "get_rank", "get_local_rank"),
    *("get_coordinate", "size", "_flatten", "_unflatten", "_concatenate", "_get_root_mesh"),
    *("_get_all_submeshes", "_create_sub_mesh", "_create_flatten_mesh", "_create_unflatten_mesh"),
)
"""Methods of meshes that compute with tensors of ranks, whose values they ask for."""
FORMS, LAYOUTS = "_propagate_tensor_meta_non_cached", "propagate_op_sharding_non_cached"
"""Methods that run operators at global shapes, for the form of their results only: no eager run makes such
tensors, for torch runs them on fake ones."""


def mesh_patches() -> list[Patch]:
    """For `torch_fake.patched`: meshes of real numbers, layouts that nobody records, and DTensors that take
    the ways of eager runs."""
    mesh = device_mesh.DeviceMesh
    methods = [(mesh, name, really(vars(mesh)[name])) for name in OF_MESHES if name in vars(mesh)]
    make = really(device_mesh.init_device_mesh)
    expand = ExpandedOnce(_ops.utils.expand_to_full_mesh_op_strategy)
    layouts: list[Patch] = [
        (ShardingPropagator, FORMS, unseen(vars(ShardingPropagator)[FORMS])),
        (ShardingPropagator, LAYOUTS, unseen(expand.afresh(vars(ShardingPropagator)[LAYOUTS]))),
        # Who looks it up when it is called, as operators on lists do, finds this one.
        (_ops.utils, "expand_to_full_mesh_op_strategy", expand),
    ]
    makers = everywhere("init_device_mesh", device_mesh.init_device_mesh, make)
    flags = everywhere(
        "_propagate_use_strided_shard_flag",
        _sharding_prop._propagate_use_strided_shard_flag,
        flagged_once(_sharding_prop._propagate_use_strided_shard_flag),
    )
    streams = everywhere(
        "_no_dispatch_record_stream", _common_utils._no_dispatch_record_stream, _record_stream
    )
    allocated = everywhere("_data_ptr_allocated", utils._data_ptr_allocated, _is_allocated)
    # torch.export makes its own tensors of fake ones; the stages of what it splits are real ones for torch.
    pipe, stage = _IR.Pipe, stages._PipelineStage
    export = vars(pipe)["_trace_with_export"]
    split = [
        (pipe, "_trace_with_export", staticmethod(unseen(export.__func__))),
        (stage, "_move_submod_to_device", _move_stage),
    ]
    return [*methods, *makers, *layouts, *flags, *streams, *allocated, *split, *_eager()]


def _is_allocated(tensor: torch.Tensor) -> bool:
    """Whether there are bytes behind `tensor`; no fake one has an address."""
    return tensor.untyped_storage().size() > 0


def _move_stage(stage: Any) -> None:
    if not any(weight.is_meta for weight in stage.submod.parameters()):
        stage.submod.to(stage.device)


def _record_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """`tensor.record_stream(stream)`, seen: FullyShardedDataParallel has it past all modes, where a fake
    tensor has no kernel for it."""
    if tensor.device.type == "cuda":
        tensor.record_stream(stream)


def everywhere(name: str, before: Any, after: Any) -> list[Patch]:
    """`after` in place of `before` in every module of torch.distributed that has it under this name."""
    modules = [module for key, module in sys.modules.items() if key.startswith("torch.distributed")]
    return [(module, name, after) for module in modules if vars(module).get(name) is before]


def really(call: Any) -> Any:
    """`call`, a function or what a class keeps, on real tensors."""
    if isinstance(call, (staticmethod, classmethod)):
        return type(call)(really(call.__func__))

    @functools.wraps(call)
    def real(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return call(*args, **kwargs)

    return real


def unseen(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with nobody recording."""

    @functools.wraps(call)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return call(*args, **kwargs)

    return alone


def _eager() -> list[Patch]:
    """Fake tensors as no sign of a trace: collectives are waited for when their results are used."""
    own = _functional_collectives
    asked = everywhere("_are_we_tracing", own._are_we_tracing, lambda: False)
    # Which numbers a shard draws is of no matter: the states of generators, 16 B each, are left out.
    asked += everywhere("is_rng_supported_mesh", _random.is_rng_supported_mesh, lambda mesh: False)
    return [*asked, *everywhere("_wrap_tensor_autograd", own._wrap_tensor_autograd, Awaited.apply)]


class Awaited(torch.autograd.Function):
    """A result that is waited for when it is used, as torch's own operator gives it on real tensors."""

    @staticmethod
    def forward(context: Any, result: torch.Tensor) -> Any:
        """The same tensor, in its wrapper."""
        return _functional_collectives.AsyncCollectiveTensor(result)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        """As it comes."""
        return gradient
