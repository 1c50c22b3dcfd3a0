"""Runs that all begin alike: what a run writes in place, and what puts it back before the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from memplan_engine.runtime.node_run import run_nodes
from memplan_engine.runtime.program import Program
from memplan_engine.torch_capture.torch_fake import FakeTwins, fake_mode, quiet, storage_of
from memplan_engine.torch_capture.torch_operators import written_values
from memplan_engine.torch_capture.torch_storages import OperatorMode, tensors_in


@contextmanager
def restoring(written: Sequence[torch.Tensor], seed: int) -> Iterator[Callable[[], None]]:
    """Gives what puts `written` back as they are now, and the random state at `seed`; at the end all of it is
    as it was before."""
    kept = [tensor.detach().clone() for tensor in written]

    def restore() -> None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for tensor, value in zip(written, kept, strict=True):
                tensor.copy_(value)

    with torch.random.fork_rng():
        try:
            yield restore
        finally:
            restore()


def written_tensors(program: Program, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Those of the flat `inputs` (`Program.inputs`) that a run of `program` writes in place, as one on fake
    tensors shows."""
    mode = fake_mode()
    twins, writes = FakeTwins(mode), _Writes()
    fakes = [twins.twin(value) for value in inputs]
    with torch.no_grad(), quiet(), mode, writes:
        run_nodes(program.module, fakes, lambda name, kind, call: call(), read=twins.twin)
    rows = zip(program.placeholders, inputs, fakes, strict=True)
    return [
        value
        for name, value, fake in rows
        if isinstance(value, torch.Tensor)
        and (name in program.written or storage_of(fake) in writes.storages)
    ]


class _Writes(OperatorMode):  # type: ignore[no-untyped-call]
    """Notes which storages operators write, through whatever view."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Run `operator` and note what it writes."""
        written = written_values(operator, args, kwargs)
        self.storages |= {storage_of(tensor) for tensor in tensors_in(list(written))}
        return operator(*args, **kwargs)
