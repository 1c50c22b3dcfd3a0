"""What transformers is told while one of its models is traced: for fake tensors it takes other ways than in
eager mode, unless the values that it asks about are known."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

TRANSFORMERS = "transformers.utils.import_utils"
"""Where transformers says whether it is being traced, which it takes any fake tensor for."""
log = logging.getLogger(__name__)


class Values(Protocol):
    """Whoever knows values of fake tensors, and whether it was said that one is not known."""

    warned: bool

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of `tensor`, None where it is not known."""
        ...


def is_tracing(values: Values, source: str) -> Callable[..., bool]:
    """What transformers shall be told instead of its `is_tracing`: that it is where it asks for a value that
    is not known."""
    from torch._subclasses.fake_tensor import FakeTensor

    def stand_in(original: Callable[..., bool], tensor: Any = None) -> bool:
        if not isinstance(tensor, FakeTensor):
            return bool(original(tensor))
        if values.of(tensor) is not None:
            return bool(original())
        if not values.warned:
            values.warned = True
            log.warning(
                "%s: transformers asks for values of %s, which are not known on fake tensors, and takes the "
                "way that it takes when it is exported; with inputs made on the CPU (a static runtime: "
                "and fixed sizes) it takes eager mode's",
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
