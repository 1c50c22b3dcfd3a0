"""Random numbers that are drawn from generators of the user's while a step runs on fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@contextmanager
def on_real_tensors() -> Iterator[None]:
    """Leave whatever is traced, for work on real tensors."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), unset_fake_temporarily(), torch.no_grad():
        yield


class DrawnFrom:
    """The generators that operators are given, which are real: what is drawn from them advances them as in an
    eager run. One is lost where something was drawn that is not worked out, until it is seeded again."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[torch.Generator, torch.Tensor]] = {}
        """By identity, those that were drawn from, and their states before the run."""
        self.lost: dict[int, torch.Tensor] = {}
        self.last: torch.Tensor | None = None

    def is_known(self, generator: Any) -> bool:
        """Whether the numbers that come next from `generator` are those of an eager run."""
        if generator is None or generator.device.type != "cpu":
            return False
        state = self.lost.get(id(generator))
        with on_real_tensors():
            if state is not None and not generator.get_state().equal(state):
                del self.lost[id(generator)]
        return id(generator) not in self.lost

    def begin(self, generator: Any) -> None:
        """Something is drawn."""
        if generator is not None and generator.device.type == "cpu":
            with on_real_tensors():
                self.last = generator.get_state()
            self.before.setdefault(id(generator), (generator, self.last))

    def repeat(self, generator: Any) -> None:
        """The same is drawn again."""
        if generator is not None and self.last is not None:
            with on_real_tensors():
                generator.set_state(self.last)

    def lose(self, generator: Any) -> None:
        """Something was drawn that is not worked out."""
        if generator is not None and generator.device.type == "cpu":
            self.begin(generator)
            with on_real_tensors():
                self.lost[id(generator)] = generator.get_state()

    def put_back(self) -> None:
        """Give all generators the states that they had before the run."""
        for generator, state in self.before.values():
            with on_real_tensors():
                generator.set_state(state)
        self.before.clear()
