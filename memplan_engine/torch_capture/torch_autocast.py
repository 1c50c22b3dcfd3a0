"""Autocast's cache of cast weights, which a traced graph does not show.

Where a region caches, eager mode keeps each cast of a float32 leaf that requires gradients and is
no view until the outermost region ends, with gradients or without (`cached_cast` in
aten/src/ATen/autocast_mode.cpp). Nothing is cached in inference mode.

A graph has regions as sub-graphs, cut where the grad mode changes inside: nodes have in their metadata
where the cache ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memplan_engine.torch_capture.torch_fake import patched

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

WRAPPER = "wrap_with_autocast"
"""The higher-order op around a region."""
CLEARED = "memplan_autocast_cache_cleared"
"""Mark of the last op before the cache is cleared, at the end of the outermost region or by the model."""
UNCACHED = "memplan_autocast_uncached"
"""Mark of an op in inference mode."""


def tracing_cache() -> AbstractContextManager[None]:
    """While a model is traced: autocast's cache as it is in eager mode, and CLEARED and UNCACHED on nodes.

    A tracer switches the cache off, and a region that leaves open whether it caches takes that for its own
    setting. A graph has no regions that begin by `torch.set_autocast_enabled`: RuntimeError.
    """
    import torch
    from torch._functorch._aot_autograd import collect_metadata_analysis
    from torch.fx.experimental import proxy_tensor

    clear, create = torch.clear_autocast_cache, torch.fx.Graph.create_node

    def mark_and_clear() -> None:
        mode = proxy_tensor.get_proxy_mode()
        for node in reversed(mode.tracer.graph.nodes) if mode is not None else ():
            if isinstance(node.target, torch._ops.OperatorBase):
                _mark(node, CLEARED)
                break
        clear()

    def create_node(graph: Any, *args: Any, **kwargs: Any) -> Node:
        node = create(graph, *args, **kwargs)
        if torch.is_inference_mode_enabled():
            _mark(node, UNCACHED)
        return node

    switch = torch.set_autocast_enabled

    def by_region(*args: Any) -> None:
        *device, value = args
        changes = bool(value) != torch.is_autocast_enabled(*device)
        if changes and not sys._getframe(1).f_globals["__name__"].startswith("torch."):
            raise RuntimeError(
                "torch.set_autocast_enabled shows in no graph, as `with torch.autocast(…)` does"
            )
        switch(*args)

    return patched(
        (torch, "set_autocast_enabled", by_region),
        (torch, "clear_autocast_cache", mark_and_clear),
        (torch.fx.Graph, "create_node", create_node),
        (proxy_tensor, "disable_autocast_cache", nullcontext),
        (collect_metadata_analysis, "disable_autocast_cache", nullcontext),
    )


def may_be_cached(tensor: Any) -> bool:
    """Return whether autocast caches a cast of `tensor`, which may be a plain number."""
    import torch

    return (
        isinstance(tensor, torch.Tensor)
        and tensor.dtype is torch.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._is_view()
        and torch.is_autocast_cache_enabled()
    )


@dataclass(slots=True)
class AutocastCache:
    """The cache while a graph is re-run.

    `casts` are what the last op has put into it, and `names` what all casts in it are called. `held_by` gets,
    by its name, the op up to whose end a cast was held.
    """

    held_by: dict[str, str]
    casts: list[torch.Tensor] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    _marked: bool = False
    _depth: int = 0

    @contextmanager
    def kept(self, module: GraphModule) -> Iterator[None]:
        """While `module` is run: no region clears the cache at its end, `ended` and `after` do."""
        import torch

        graphs = (each.graph for each in module.modules() if isinstance(each, torch.fx.GraphModule))
        self._marked = any(CLEARED in _marks(node) for graph in graphs for node in graph.nodes)
        torch.autocast_increment_nesting()
        try:
            yield
        finally:
            torch.autocast_decrement_nesting()
            torch.clear_autocast_cache()

    @contextmanager
    def region(self) -> Iterator[None]:
        """Inside a region."""
        self._depth += 1
        yield
        self._depth -= 1

    def ended(self, last: str) -> None:
        """Clear the cache where a region has ended with the op `last`, and nodes do not say when."""
        if not self._depth and not self._marked:
            self._clear(last)

    def around(self, node: Node) -> AbstractContextManager[None]:
        """The setting of the cache for `node`."""
        return _uncached() if UNCACHED in _marks(node) else nullcontext()

    def after(self, node: Node, last: str) -> None:
        """Clear the cache where the model did after `node`; `last` is the op that ran last."""
        if CLEARED in _marks(node):
            self._clear(last)

    def _clear(self, last: str) -> None:
        import torch

        torch.clear_autocast_cache()
        self.held_by.update(dict.fromkeys(self.names, last))
        self.names.clear()


@contextmanager
def _uncached() -> Iterator[None]:
    import torch

    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _mark(node: Node, mark: str) -> None:
    node.meta["custom"] = {**_marks(node), mark: True}


def _marks(node: Node) -> dict[str, Any]:
    return node.meta.get("custom") or {}
