"""The key/value caches of Hugging Face's models as nested values: torch then sees the tensors in them, and
prefill and decoding can be exported, run and compared like any call.

transformers is never imported here: whoever gives or returns a cache has done so already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

MODULE = "transformers.cache_utils"
ROOTS = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "DummyLayer")
"""What all caches and their layers are derived from; a release that lacks one of them has no such layers."""


@dataclass(frozen=True, slots=True)
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
    leaves = pytree.tree_leaves(value, is_leaf=lambda one: isinstance(one, kinds))
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
