"""A live `nn.Module` with example inputs → Graph, without allocating or copying a weight.

The key/value caches of Hugging Face's models are nested values to torch, which then sees the tensors in them:
prefill and decoding can be exported, run and compared like any call. transformers is never imported here:
whoever gives or returns a cache has done so already.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError, one_line
from memplan_engine.torch_capture.torch_dims import parse_dynamic, torch_dynamic_shapes
from memplan_engine.torch_capture.torch_exporting import (
    FUSED,
    export_as_eager,
    hearing_of_compiled,
    made_functional,
)
from memplan_engine.torch_capture.torch_fake import EXPORTABLE, FakeTwins, fake_mode, quiet, require_torch
from memplan_engine.torch_capture.torch_graph import graph_from_exported
from memplan_engine.torch_capture.torch_run import as_input_error, brief

if TYPE_CHECKING:
    import torch

    from memplan_engine.graph import Graph

INPUT_SIZE = re.compile(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]")
"""A dimension of an input, as torch.export calls it in messages."""
BROKEN = ("Constraints violated", "Specializations unexpectedly required", "not in range")
MODULE = "transformers.cache_utils"
ROOTS = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer")
"""What all caches and their layers are derived from; a release that lacks one of them has no such layers."""
log = logging.getLogger(__name__)


def capture(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    functional: bool = False,
    name: str | None = None,
) -> Graph:
    """The graph that `model(*args, **kwargs)` runs, by `torch.export` (non-strict) on fake tensors.

    The model is taken in the mode it is in (train or eval) and is not changed; gradients are off. It and
    its inputs may be real, meta or fake, inputs also nested in tuples, lists, dicts and dataclasses; meta
    tensors are treated as lying on the CPU. Tied weights stay tied. `functional` replaces in-place ops by
    functional ones (`run_decompositions({})`); nothing is ever decomposed. `name` defaults to the class's.

    `dynamic_shapes` is torch.export's (of `Dim`, `Dim.AUTO`, …), or text in the form of `torch_dims`:
    "input_ids:0=batch[1:64],input_ids:1=seq[2:1024]". The graph then has a symbol for each dynamic dimension,
    and formulas; its numbers are those of the sizes of the inputs given, which must be 2 or more in these
    dimensions, since torch takes sizes of 0 and 1 for fixed ones.

    Raises
    ------
    InputError: a model that cannot be exported (control flow that depends on data, unsupported ops or
        inputs), with the first line of torch's message; a dimension that the model does not leave free,
        with torch's reason.
    MissingDependencyError: torch is not installed.
    """
    require_torch("capturing a model")
    import torch

    label = name or type(model).__name__
    check_module(model, label)
    shapes = dynamic_shapes_of(dynamic_shapes, model, args, kwargs or {}, label)
    twins = FakeTwins(fake_mode(), meta_device="cpu")
    with hearing_of_compiled(model) as heard, exporting(label, dynamic_shapes is not None), torch.no_grad():
        exported, _ = export_as_eager(
            fake_model(model, twins),
            tuple(fake_inputs(list(args), twins)),
            fake_inputs(dict(kwargs or {}), twins),
            (tuple(args), dict(kwargs or {})),
            label,
            dynamic_shapes=shapes,
            # Conditions on symbols that are no range (a size is even) are checks then, not errors.
            prefer_deferred_runtime_asserts_over_guards=shapes is not None,
        )
        if functional:
            exported = made_functional(exported, label)
    graph = replace(graph_from_exported(exported, label), compiled=bool(heard))
    warn_of_fused(graph)
    return graph


def check_module(model: Any, source: str) -> None:
    """Raise InputError for what is no module."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InputError(source, "model", f"a {type(model).__name__}", "a torch.nn.Module")


@contextmanager
def tracing(source: str, place: str, expected: str) -> Iterator[None]:
    """With gradients on and torch's warnings off; errors of torch become an InputError at `place`."""
    import torch

    try:
        with as_input_error(source, place, expected, lines=True), torch.enable_grad(), quiet():
            yield
    except InputError as error:
        raise InputError(source, error.place, error.found, error.expected) from error.__cause__ or error


@contextmanager
def exporting(source: str, dynamic: bool = False) -> Iterator[None]:
    """As `tracing`, for `torch.export`; what is `dynamic` may be a dimension that the model does not leave
    free."""
    try:
        with tracing(source, "torch.export", EXPORTABLE):
            yield
    except InputError as error:
        if dynamic and error.__cause__ and (reasons := _broken_constraints(error.__cause__)):
            expected = "dimensions that the model leaves free"
            raise InputError(source, "dynamic_shapes", reasons, expected) from error
        raise


def dynamic_shapes_of(
    dynamic_shapes: Any, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], label: str
) -> Any:
    """`dynamic_shapes` as torch.export takes it: text is read, all else is torch's own form already."""
    texts = [dynamic_shapes] if isinstance(dynamic_shapes, str) else dynamic_shapes
    if not isinstance(texts, (list, tuple)) or not texts or not all(isinstance(text, str) for text in texts):
        return dynamic_shapes
    return torch_dynamic_shapes(parse_dynamic(texts, label), model, args, kwargs, label)


def _broken_constraints(error: BaseException) -> str:
    """What torch.export says of the dynamic dimensions that cannot be so, with what it suggests; "" where
    `error` is another."""
    lines = [line.strip() for line in str(error).split("The error above")[0].splitlines() if line.strip()]
    if lines and any(sign in lines[0] for sign in BROKEN):
        return one_line(INPUT_SIZE.sub(r"\1[\2]", " ".join(lines[1:] or lines).replace("- ", "")), 400)
    return ""


def warn_of_fused(graph: Graph) -> None:
    """Say of a graph with fused layers that their scratch is not in it."""
    fused = [op for op in graph.ops if op.kind in FUSED]
    if fused:
        log.warning(
            "%s: eager mode runs %s (%d in all) as one fused op, and so does this graph; what it holds "
            "inside is known only to the allocator: memplan run shows it",
            graph.name,
            fused[0].module or fused[0].name,
            len(fused),
        )


def fake_model(model: torch.nn.Module, twins: FakeTwins) -> torch.nn.Module:
    """A copy of `model` with fake parameters and buffers; `model` itself where it cannot be copied, which
    torch.export can bear as long as nothing in it is on the meta device."""
    memo = _tensor_memo(model, twins)
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
            raise InputError(
                type(model).__name__, "copy.deepcopy", brief(error), "a model on meta that can be copied"
            ) from error
        log.warning("%s cannot be copied (%s): exporting it as it is", type(model).__name__, brief(error))
        return model


def _tensor_memo(model: torch.nn.Module, twins: FakeTwins) -> dict[int, Any]:
    """What `copy.deepcopy` shall use for each tensor of `model`, by the tensor's id: its twin, or, for a real
    tensor that is a plain attribute (its values may steer the trace), the tensor itself."""
    import torch
    from torch.utils import _pytree as pytree

    memo: dict[int, Any] = {}
    for module in model.modules():
        plain = {key: value for key, value in vars(module).items() if key not in ("_parameters", "_buffers")}
        for leaf in pytree.tree_leaves(plain):
            if isinstance(leaf, torch.Tensor):
                memo[id(leaf)] = twins.twin(leaf) if leaf.is_meta else leaf
    for tensor in (*model.parameters(), *model.buffers()):
        memo[id(tensor)] = twins.twin(tensor)
    return memo


def fake_inputs(value: Any, twins: FakeTwins) -> Any:
    """`value` with a fake twin for every tensor in it. Dataclasses met for the first time are registered
    with torch.export, which refuses them otherwise; so are the caches of Hugging Face's models, which also
    stand in what these return."""
    import torch
    from torch.utils import _pytree as pytree

    register_caches()
    while unknown := {
        type(leaf)
        for leaf in pytree.tree_leaves(value)
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)
    }:
        for kind in unknown:
            torch.export.register_dataclass(kind)
    return pytree.tree_map(twins.twin, value)


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceOf:
    """Stands for the device of the tensor in the attribute `name`: a layer captured on fake tensors must make
    its masks where these are, wherever it was built."""

    name: str


def register_caches() -> None:
    """Make known to torch (`register_pytree_node`) every kind of cache and cache layer that there is by now.
    What somebody else has made known is left as it is."""
    from torch.utils import _pytree as pytree

    for kind in _kinds():
        if kind not in pytree.SUPPORTED_NODES:
            pytree.register_pytree_node(
                kind,
                _flatten,
                partial(_unflatten, kind),
                flatten_with_keys_fn=_flatten_with_keys,
                serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
            )


def _kinds() -> Iterator[type]:
    module = sys.modules.get(MODULE)
    waiting = [kind for name in ROOTS if isinstance(kind := getattr(module, name, None), type)]
    while waiting:
        kind = waiting.pop()
        yield kind
        waiting.extend(kind.__subclasses__())


def _flatten(cache: Any) -> tuple[list[Any], Any]:
    """The attributes that hold tensors or layers, and, to be compared, the names of these and all others."""
    import torch

    own = vars(cache)
    held = [name for name in own if _holds_tensors(own[name])]
    devices = {own[name].device: DeviceOf(name) for name in held if isinstance(own[name], torch.Tensor)}
    plain = {
        name: devices.get(value, value) if isinstance(value, torch.device) else _copied(value)
        for name, value in own.items()
        if name not in held
    }
    return [own[name] for name in held], (held, plain)


def _flatten_with_keys(cache: Any) -> tuple[list[tuple[Any, Any]], Any]:
    from torch.utils import _pytree as pytree

    values, context = _flatten(cache)
    return [(pytree.GetAttrKey(name), value) for name, value in zip(context[0], values, strict=True)], context


def _unflatten(kind: Any, values: Any, context: Any) -> Any:
    names, plain = context
    cache = kind.__new__(kind)
    own = vars(cache)
    own.update(zip(names, values, strict=True))
    for name, value in plain.items():
        own[name] = (
            getattr(own[value.name], "device", None) if isinstance(value, DeviceOf) else _copied(value)
        )
    return cache


def _holds_tensors(value: Any) -> bool:
    """Whether there is a tensor, a cache or a layer in `value`."""
    import torch
    from torch.utils import _pytree as pytree

    kinds = tuple(_kinds())
    leaves = pytree.tree_leaves(value, is_leaf=lambda leaf: isinstance(leaf, kinds))
    return any(isinstance(leaf, (torch.Tensor, *kinds)) for leaf in leaves)


def _copied(value: Any) -> Any:
    """`value`, or a copy of a dict or list, which a run may change ("layer 0 is filled")."""
    return value.copy() if isinstance(value, (dict, list, set)) else value


def as_given(value: Any) -> Any:
    """`value` with the same tensors in new containers: a model that lengthens a cache or fills a dict that it
    is called with must not change what the next run is called with."""
    from torch.utils import _pytree as pytree

    leaves, form = pytree.tree_flatten(value)
    return pytree.tree_unflatten(leaves, form)
