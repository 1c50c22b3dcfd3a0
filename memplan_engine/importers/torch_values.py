"""Values that a model asks for while its step is traced: worked out where they follow from what is known.

Eager code branches on values (`mask.all()`), and libraries take another way where they see fake tensors. A
value that rests on nothing but numbers, ranges and given inputs is as known in a trace as in an eager run.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memplan_engine.importers.torch_fake import concrete

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

MOST_ELEMENTS = 2**20
"""Of a tensor that is worked out: masks and positions are far below, activations are seldom."""
TRANSFORMERS = "transformers.utils.import_utils"
"""Where transformers says whether it is being traced, which it takes any fake tensor for."""
log = logging.getLogger(__name__)


class KnownValues:
    """Works out tensors of a trace from its nodes. `given` are the real tensors of placeholders, by node."""

    def __init__(self, tracer: Any, given: Mapping[Node, torch.Tensor]) -> None:
        self.tracer, self.found = tracer, dict(given)

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of `tensor`, None where it is not known."""
        node = self.node_of(tensor)
        return None if node is None else self._value(node)

    def node_of(self, tensor: torch.Tensor) -> Node | None:
        """The node of the trace that made `tensor`."""
        from torch.fx.experimental.proxy_tensor import get_proxy_slot

        slot: Any = None if self.tracer is None else get_proxy_slot(tensor, self.tracer, None)
        return None if slot is None else slot.proxy.node

    def _value(self, node: Node) -> Any:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        cone = self._cone(node)
        if cone is None:
            return None
        with _disable_current_modes(), torch.no_grad():
            for each in cone:
                values = torch.fx.node.map_arg((each.args, each.kwargs), lambda used: self.found[used])
                self.found[each] = each.target(*values[0], **values[1])  # type: ignore[operator]
        return self.found[node]

    def _read_constant(self, node: Node) -> None:
        """Know the value of a tensor that the trace has as an attribute, `torch.tensor([…])` of the model;
        of a symbol the size that the example inputs have."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        size = node.meta.get("val")
        if isinstance(size, torch.SymInt) and size.node.has_hint():
            self.found[node] = size.node.hint
        if node.op == "get_attr" and node not in self.found:
            value = getattr(self.tracer.root, str(node.target), None)
            if value is not None and not isinstance(value, FakeTensor):
                self.found[node] = value

    def _cone(self, node: Node) -> list[Node] | None:
        """The nodes that lead to `node`, in order; None where one of them is not known, or is written."""
        wanted, seen = [node], set()
        while wanted:
            each = wanted.pop()
            if each in seen:
                continue
            self._read_constant(each)
            if _is_written(each) or (each not in self.found and not _follows(each)):
                return None
            seen.add(each)
            if each not in self.found:
                wanted += each.all_input_nodes
        return [each for each in node.graph.nodes if each in seen and each not in self.found]


def _follows(node: Node) -> bool:
    """Whether what `node` gives follows from what it is given, and is not too large."""
    import operator

    import torch

    if node.op != "call_function":
        return False
    target: Any = node.target
    if target is operator.getitem:
        return True
    value: Any = node.meta.get("val")
    small = not isinstance(value, torch.Tensor) or (
        all(isinstance(size, int) or size.node.has_hint() for size in value.shape)
        and math.prod(concrete(size) for size in value.shape) <= MOST_ELEMENTS
    )
    schema = getattr(target, "_schema", None)
    pure = schema is not None and not schema.is_mutable and "empty" not in schema.name
    return small and pure and torch.Tag.nondeterministic_seeded not in target.tags


def _is_written(node: Node) -> bool:
    """Whether anything has written what `node` gave, itself or through a view."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if schema is None:
            continue
        if schema.is_mutable:
            return True
        shows = any(result.alias_info is not None for result in schema.returns)
        if shows and _is_written(user):
            return True
    return False


@contextmanager
def answering(values: KnownValues, source: str) -> Iterator[None]:
    """Answers `.item()` and branches on tensors from `values`, and has transformers take the way of eager
    mode for tensors whose values are known. Of others one warning says that it takes a tracer's way."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    scalars = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)

    class Answers(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in scalars:
                known = values.of(args[0])
                if known is not None:
                    return bool(known) if func is scalars[1] else known.item()
            return func(*args, **(kwargs or {}))

    with replaced("is_tracing", is_tracing(values, source)), Answers():  # type: ignore[no-untyped-call]
        yield


def is_tracing(values: KnownValues, source: str) -> Callable[..., bool]:
    """What transformers shall be told instead of its `is_tracing`: that it is where it asks for a value that
    is not known."""
    from torch._subclasses.fake_tensor import FakeTensor

    told: list[Any] = []

    def stand_in(original: Callable[..., bool], tensor: Any = None) -> bool:
        if not isinstance(tensor, FakeTensor):
            return bool(original(tensor))
        if values.of(tensor) is not None:
            return bool(original())
        if not told:
            told.append(tensor)
            log.warning(
                "%s: transformers asks for values of %s, which are not known on fake tensors, and takes the "
                "way that it takes when it is exported; with inputs made on the CPU it takes eager mode's",
                source,
                f"a tensor of {tuple(tensor.shape)}",
            )
        return True

    return stand_in


@contextmanager
def replaced(name: str, stand_in: Callable[..., Any], but: Sequence[str] = ()) -> Iterator[None]:
    """With `stand_in(original, …)` for the function `name` of transformers wherever a module has it, those
    named in `but` left out."""
    original = getattr(sys.modules.get(TRANSFORMERS), name, None)
    if original is None:
        yield
        return

    def function(*given: Any, **named: Any) -> Any:
        return stand_in(original, *given, **named)

    def swap(before: Any, after: Any) -> None:
        for module in list(sys.modules.values()):
            if vars(module).get(name) is before and module.__name__ not in but:
                setattr(module, name, after)

    swap(original, function)
    try:
        yield
    finally:
        # Also where it was imported meanwhile.
        swap(function, original)
