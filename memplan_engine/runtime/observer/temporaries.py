"""What a program writes in place, and what its ops hold meanwhile, without a real run."""

from __future__ import annotations

from typing import Any

import torch

from memplan_engine.runtime.node_run import run_nodes
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.signature import Expected
from memplan_engine.torch_capture.torch_fake import FakeTwins, fake_mode, quiet
from memplan_engine.torch_capture.torch_storages import OperatorMode, tensors_in
from memplan_engine.torch_capture.torch_writes import written_values
from memplan_engine.torch_capture.training.torch_recipe import storage_of


def predict_temporaries(program: Program) -> dict[str, int]:
    """For each op of the program's graph that needs any, the bytes that it holds at its fullest moment beside
    its inputs and outputs: what the operators inside it make, as capturing saw it. What kernels take for
    themselves only a real run can tell: see `learn_workspaces`."""
    return {op.name: op.workspace.shared for op in program.graph.ops if op.workspace.shared}


def written_in_place(program: Program) -> tuple[bool, ...]:
    """For each placeholder whether a run of `program` writes it in place, as one on fake tensors shows."""
    mode = fake_mode()
    twins = FakeTwins(mode)
    inputs = [_fake(value, twins) for value in program.state]
    inputs += [_stand_in(one, twins) for one in program.expected]
    writes = _Writes()
    with torch.no_grad(), quiet(), mode, writes:
        run_nodes(program.module, inputs, lambda name, kind, call: call(), read=lambda v: _fake(v, twins))
    copied = {name for name in program.written if name is not None}
    return tuple(
        name in copied or (isinstance(value, torch.Tensor) and storage_of(value) in writes.storages)
        for name, value in zip(program.placeholders, inputs, strict=True)
    )


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


def _fake(value: Any, twins: FakeTwins) -> Any:
    return twins.twin(value) if isinstance(value, torch.Tensor) else value


def _stand_in(one: Expected, twins: FakeTwins) -> Any:
    """A fake tensor like an input, or the plain value that was captured."""
    if one.dtype is None:
        return one.value
    with twins.mode:
        return torch.empty_strided(one.shape, one.strides, dtype=one.dtype, device=one.device)
