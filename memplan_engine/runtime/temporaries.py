"""What a program writes in place, and what its ops hold meanwhile, without a real run."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.node import map_arg

from memplan_engine.importers.torch_fake import FakeTwins, fake_mode, quiet
from memplan_engine.importers.torch_run import written as written_by
from memplan_engine.runtime.node_run import run_nodes
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.signature import Expected


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
    before = [_version(value) for value in inputs]
    with torch.no_grad(), quiet(), mode:
        run_nodes(program.module, inputs, lambda name, kind, call: call(), read=lambda v: _fake(v, twins))
    said = _said(program)
    return tuple(
        name in said or _version(value) != version
        for name, value, version in zip(program.placeholders, inputs, before, strict=True)
    )


def _version(value: Any) -> int:
    """How often a tensor has been written in place, whatever view it was written through."""
    return value._version if isinstance(value, torch.Tensor) else 0


def _said(program: Program) -> set[str]:
    """The placeholders that operators write by their schemas, or without a word (`WRITES_UNSAID`)."""
    found = {name for name in program.written if name is not None}
    for node in program.module.graph.nodes:
        if node.op == "call_function":
            names: Any = map_arg((node.args, node.kwargs), lambda used: used.name)
            found.update(written_by(node, *names))
    return found


def _fake(value: Any, twins: FakeTwins) -> Any:
    return twins.twin(value) if isinstance(value, torch.Tensor) else value


def _stand_in(one: Expected, twins: FakeTwins) -> Any:
    """A fake tensor like an input, or the plain value that was captured."""
    if one.dtype is None:
        return one.value
    with twins.mode:
        return torch.empty_strided(one.shape, one.strides, dtype=one.dtype, device=one.device)
