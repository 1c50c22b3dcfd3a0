"""Programs rewritten as a fit says: every stage gives the bits of the captured program, and holds the bytes
that were predicted, by a recorder that knows nothing of the engine and in the slab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan_engine import InputError, Plan, fit_graph, fitted_program, insert_slab, load_program
from memplan_engine.advice.fit_stages import StageName
from memplan_engine.graph import Role
from memplan_engine.rewrites.reuse.writes_over import writes_over
from memplan_engine.runtime.loading import example_inputs, load_pt2, load_step
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.slab.fitted_program import fitted_target, ordered_program
from memplan_engine.runtime.slab.insert_slab import slab_report
from memplan_engine.runtime.trial.equality import restoring, written_tensors
from memplan_engine.strategies.base import SolveLimits
from tests.support.measured import measure_graph_module
from tests.support.runtime import Calls, same_bits

NODES = 20_000
"""For each search of a stage; the graphs are small enough for proofs."""


class Restless(nn.Module):
    """Batch norm that writes its statistics, dropout that draws, views, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> Any:
        y = functional.dropout(self.norm(self.convolution(x)).relu(), 0.5, training=True)
        a, b = x.repeat(4, 1, 1, 1), x.repeat(4, 1, 1, 1)
        left, right = functional.dropout(y * 2, 0.25, training=True).chunk(2, 1)
        sums = torch.cat([a.exp().sum((1, 2)), b.sigmoid().sum((1, 2))])
        return (left + right).transpose(1, 2), y.mean(), sums


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def square(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


def check_stages(program: Program, inputs: tuple[Any, ...], stages: list[str]) -> None:
    fitted = fit_graph(program.graph, limits=SolveLimits(nodes=NODES))
    assert [str(stage.name) for stage in fitted.stages] == stages
    flat = program.inputs(inputs)
    has_concats = any(op.kind == "aten.cat" for op in program.graph.ops)
    written = written_tensors(program, flat)
    with restoring(written, 5) as restore:
        restore()
        expected = program.run(inputs)
        after = [tensor.clone() for tensor in written]
        for stage in fitted.stages:
            graph = stage.rewritten
            other, base = fitted_program(program, graph), ordered_program(program, graph)
            module = insert_slab(base, stage.plan, policy="all")
            assert slab_report(module).slab_bytes == stage.plan.arena_bytes
            for each in (other, base.with_module(module)):
                restore()
                result = each.run(inputs)
                kept = result if not isinstance(result, list) else expected[: len(result)]
                assert same_bits(result, kept if isinstance(result, list) else expected)
                assert same_bits(written, after)
            restore()
            peak = max(measure_graph_module(other.module, flat).values())
            if not (has_concats and stage.name is not StageName.CAPTURED):
                assert peak == stage.load_bytes
            assert peak >= stage.load_bytes
    assert fitted.stages[-1].load_bytes < fitted.stages[0].load_bytes


def test_each_stage_of_a_model_with_writes_random_numbers_and_views_runs() -> None:
    x = torch.rand(2, 3, 8, 8)
    check_stages(load_program(Restless().train(), (x,)), (x,), ["captured", "in_place", "reorder"])


def test_each_stage_of_a_saved_program_runs(tmp_path: Path) -> None:
    x = torch.rand(2, 3, 8, 8)
    torch.export.save(torch.export.export(Restless().train(), (x,)), tmp_path / "model.pt2")
    program = load_pt2(tmp_path / "model.pt2")
    check_stages(program, example_inputs(program), ["captured", "in_place", "reorder"])


@pytest.mark.parametrize("options", [{}, {"clip_grad_norm": 1.0}, {"accumulate": 2}, {"foreach": True}])
def test_each_stage_of_a_training_step_runs(options: dict[str, Any]) -> None:
    """Gradients that are clipped together, or to which a second pass adds, cannot go one by one."""
    x = torch.rand(4, 32)
    program = load_step(Small(), (x,), optimizer="adam", loss=square, **options)
    last = [] if options.keys() & {"clip_grad_norm", "accumulate"} else ["gradients"]
    check_stages(program, (x,), ["captured", "in_place", "reorder", *last])


def test_freed_gradients_are_not_returned_and_the_others_are() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = square(model(x))
        loss.backward()
        optimizer.step()
        return loss, next(model.parameters()).grad

    x = torch.rand(4, 32)
    program = load_step(Small(), (x,), optimizer="sgd", step=step)
    fitted = fit_graph(program.graph, only=["gradients"], limits=SolveLimits(nodes=NODES))
    other = fitted_program(program, fitted.stages[-1].rewritten)
    with restoring(written_tensors(program, program.inputs((x,))), 1) as restore:
        restore()
        expected = program.run((x,))
        restore()
        result = other.run((x,))
    # The loss and what the step returns by itself; one of the held ones is that very gradient.
    assert same_bits(result[:2], expected[:2])
    assert len(expected) == 2 + 4
    assert len(result) == 3


def test_what_writes_over_an_input_is_found_by_the_places_of_tensors() -> None:
    x = torch.rand(8, 8)
    program = load_program(Calls(lambda linear, x: (x * 2).exp().sum()), (x,))
    fitted = fit_graph(program.graph, only=["in_place"], limits=SolveLimits(nodes=NODES))
    assert writes_over(program.graph, fitted.best.rewritten) == {"exp": "mul"}
    assert writes_over(program.graph, program.graph) == {}
    assert [storage.role for storage in program.graph.storages].count(Role.ACTIVATION) == 2
    other = fitted_program(program, fitted.best.rewritten)
    assert other.graph.ops[1].mutates


def test_a_graph_of_another_model_is_refused_and_no_target_is_changed_by_it() -> None:
    x = torch.rand(8, 8)
    one = load_program(Calls(lambda linear, x: (x * 2).exp().sum()), (x,))
    other = load_program(Calls(lambda linear, x: (x * 2).tanh().sum()), (x,))
    with pytest.raises(InputError, match="the order"):
        fitted_program(one, other.graph)
    from memplan_engine.runtime.loading import run_target

    target = run_target(Calls(lambda linear, x: (x * 2).exp().sum()), (x,))
    assert fitted_target(target, other.graph) is target
    assert isinstance(fit_graph(one.graph, limits=SolveLimits(nodes=NODES)).best.plan, Plan)
