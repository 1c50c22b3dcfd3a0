"""What operators made of other operators hold meanwhile: storages that no node of the graph returns.

`layer_norm` calls `native_layer_norm`, whose mean and deviation it drops; `scaled_dot_product_attention`
drops its logarithms. They live while the node runs, beside its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.node import map_arg

from memplan_engine.importers.torch_fake import FakeTwins, fake_mode, quiet
from memplan_engine.importers.torch_kernels import as_on_cpu
from memplan_engine.importers.torch_run import written
from memplan_engine.runtime.node_run import run_nodes
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.signature import Expected
from memplan_engine.runtime.storages import OperatorMode, StorageSizes

OTHERWISE_FAKE = ("aten.one_hot",)
"""Ops made of others on fake tensors than on real ones, where they hold nothing beside their result."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a run on fake tensors shows: `temporaries` in bytes by op, and for each placeholder whether a run
    writes it in place."""

    temporaries: dict[str, int]
    written: tuple[bool, ...]


def predict_temporaries(program: Program) -> dict[str, int]:
    """For each op of the program's graph that needs any, the bytes that it holds at its fullest moment beside
    its inputs and outputs, without running anything: the graph is run on fake tensors, and every operator
    below its nodes is watched. What kernels take for themselves only a real run can tell: see
    `learn_workspaces`."""
    return rehearse(program).temporaries


def rehearse(program: Program) -> Rehearsal:
    """Run the graph of `program` on fake tensors."""
    mode = fake_mode()
    twins = FakeTwins(mode)
    watch = _Inner()
    inputs = [_fake(value, twins) for value in program.state]
    inputs += [_stand_in(one, twins) for one in program.expected]
    found: dict[str, int] = {}

    def around(name: str, kind: str, call: Callable[[], Any]) -> Any:
        watch.most = watch.sizes.nbytes
        value = call()
        if watch.most > watch.sizes.nbytes and kind not in OTHERWISE_FAKE:
            found[name] = watch.most - watch.sizes.nbytes
        return value

    watch.sizes.given(inputs)
    before = [_version(value) for value in inputs]
    with torch.no_grad(), quiet(), mode, watch:
        run_nodes(program.module, inputs, around, read=lambda value: _fake(value, twins))
    watch.sizes.close()
    said = _said(program)
    written = [
        name in said or _version(value) != version
        for name, value, version in zip(program.placeholders, inputs, before, strict=True)
    ]
    return Rehearsal(found, tuple(written))


def _version(value: Any) -> int:
    """How often a tensor has been written in place, whatever view it was written through."""
    return value._version if isinstance(value, torch.Tensor) else 0


def _said(program: Program) -> set[str]:
    """The placeholders that operators write by their schemas, or without a word (`WRITES_UNSAID`)."""
    found = {name for name in program.written if name is not None}
    for node in program.module.graph.nodes:
        if node.op == "call_function":
            names: Any = map_arg((node.args, node.kwargs), lambda used: used.name)
            found.update(written(node, *names))
    return found


def _fake(value: Any, twins: FakeTwins) -> Any:
    return twins.twin(value) if isinstance(value, torch.Tensor) else value


def _stand_in(one: Expected, twins: FakeTwins) -> Any:
    """A fake tensor like an input, or the plain value that was captured."""
    if one.dtype is None:
        return one.value
    with twins.mode:
        return torch.empty_strided(one.shape, one.strides, dtype=one.dtype, device=one.device)


class _Inner(OperatorMode):  # type: ignore[no-untyped-call]
    """Sums up the storages that operators give back."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.most = StorageSizes(), 0

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        value = as_on_cpu(operator, operator(*args, **kwargs), args, kwargs)
        self.sizes.returned(value, args, kwargs, operator)
        self.most = max(self.most, self.sizes.nbytes)
        return value
