"""Programs some of whose ops run again: the bits of the captured program, and the bytes that were predicted,
by a recorder that knows nothing of the engine and in the slab."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan_engine import InputError, accelerator, fit_graph, fitted_program, insert_slab, load_program
from memplan_engine.analysis.op_costs import modelled_times
from memplan_engine.fitting.fitted import Stage, state_bytes_of
from memplan_engine.runtime.loading import load_step
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.recomputed_program import recomputed_program
from memplan_engine.runtime.slab.fitted_program import ordered_program
from memplan_engine.runtime.slab.insert_slab import slab_report
from memplan_engine.runtime.trial.equality import restoring, written_tensors
from tests.support.measured import measure_graph_module
from tests.support.runtime import same_bits


class Blocks(nn.Module):
    """Products, norms with several results, views, and dropout, which draws."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32), nn.Dropout(0.1))
            for _ in range(6)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


class Pictures(nn.Module):
    """Convolutions and batch norms, which write their statistics, and branches that are concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        for part in self.parts:
            left, right = x.chunk(2, 1)
            x = torch.cat([part(x), left * right.sigmoid()], 1)
        return functional.avg_pool2d(x, 4).flatten(1)


def square(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


def recomputed(program: Program, share: float, **options: Any) -> Stage:
    """The stage in which ops run again, within `share` of what the stages before it need."""
    graph = program.graph
    before = fit_graph(graph, **options).best.plan.arena_bytes
    capacity = state_bytes_of(graph) + int(share * before)
    fitted = fit_graph(graph, capacity, times=modelled_times(graph, accelerator("a100-80")), **options)
    # Copies to the host may be quicker.
    stage = fitted.again
    assert stage is not None
    assert stage.time is not None
    assert stage.time.bound_seconds is not None
    assert 0 <= stage.time.bound_seconds <= stage.time.extra_seconds > 0
    return stage


def check(program: Program, inputs: tuple[Any, ...], stage: Stage) -> None:
    flat = program.inputs(inputs)
    graph = stage.rewritten
    assert len(graph.ops) > len(program.graph.ops)
    other, base = fitted_program(program, graph), ordered_program(program, graph)
    module = insert_slab(base, stage.plan, policy="all")
    assert slab_report(module).slab_bytes == stage.plan.arena_bytes
    with restoring(written_tensors(program, flat), 5) as restore:
        restore()
        expected = program.run(inputs)
        after = [tensor.clone() for tensor in written_tensors(program, flat)]
        for each in (other, base.with_module(module)):
            restore()
            result = each.run(inputs)
            assert same_bits(result, expected[: len(result)] if isinstance(result, list) else expected)
            assert same_bits(written_tensors(program, flat), after)
        restore()
        peak = max(measure_graph_module(other.module, flat).values())
    has_concats = any(op.kind == "aten.cat" for op in program.graph.ops)
    assert peak == stage.load_bytes or (has_concats and peak > stage.load_bytes)


@pytest.mark.parametrize(("optimizer", "share"), [("sgd", 0.6), ("adamw", 0.8)])
def test_a_training_step_has_the_same_bits_and_the_peak_that_was_predicted(
    optimizer: str, share: float
) -> None:
    x = torch.rand(128, 32)
    program = load_step(Blocks().train(), (x,), optimizer=optimizer, loss=square)
    check(program, (x,), recomputed(program, share))


def test_batch_norm_counts_once_and_concatenations_run_again() -> None:
    x = torch.rand(4, 3, 16, 16)
    program = load_step(Pictures().train(), (x,), optimizer="sgd", loss=square)
    check(program, (x,), recomputed(program, 0.8))


def test_an_inference_runs_ops_again_too() -> None:
    class Long(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = x.repeat(1, 16)
            narrow = wide.sin().sum(1, keepdim=True)
            for _ in range(3):
                narrow = (narrow.repeat(1, 1024).cos() * 2).sum(1, keepdim=True)
            return wide.sum(1, keepdim=True) + narrow

    x = torch.rand(64, 64)
    program = load_program(Long(), (x,))
    check(program, (x,), recomputed(program, 0.8, only=("in_place", "recompute")))


def test_another_graph_is_refused() -> None:
    x = torch.rand(128, 32)
    program = load_step(Blocks().train(), (x,), optimizer="sgd", loss=square)
    graph = recomputed(program, 0.7, only=("recompute",)).graph
    assert recomputed_program(program, graph).graph.ops != program.graph.ops
    again = next(op for op in graph.ops if op.name.endswith("_again"))
    for ops, found in (
        (tuple(op for op in graph.ops if op.name != again.name), "_again, which is read before it"),
        (tuple(replace(op, name="other_again") if op is again else op for op in graph.ops), "no op of the"),
    ):
        with pytest.raises(InputError, match=found):
            recomputed_program(program, replace(graph, ops=ops))
