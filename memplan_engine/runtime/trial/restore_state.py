"""Runs that all begin alike: what a run has written in place is put back before the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch


@contextmanager
def settling(written: Sequence[torch.Tensor], seed: int) -> Iterator[Callable[[], None]]:
    """Gives what puts `written` back as they are now, and the random state at `seed`; at the end all of it is
    as it was before."""
    kept = [tensor.detach().clone() for tensor in written]

    def settle() -> None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for tensor, value in zip(written, kept, strict=True):
                tensor.copy_(value)

    with torch.random.fork_rng():
        try:
            yield settle
        finally:
            settle()
