"""Ops that change the shape or the strides of a tensor in place: what is written before them has the shape
that it was made with, in the graph, in the slab, in safety mode and in a static runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import (
    StaticRuntime,
    capture,
    compare_run,
    insert_slab,
    load_program,
    make_plan,
    run_safely,
)
from memplan_engine.runtime.loading import run_target_of_step
from memplan_engine.runtime.trial.run_in_plan import run_in_plan
from tests.support.runtime import same_bits


def unsqueezed(x: torch.Tensor) -> Any:
    made = x + 1
    before = made * 2
    made.unsqueeze_(0)
    return (made + 3).sum(0), before


def squeezed(x: torch.Tensor) -> Any:
    made = (x + 1).unsqueeze(1) * 1
    made.squeeze_(1)
    return (made @ made.t()) + 1


def transposed(x: torch.Tensor) -> Any:
    made = x + 1
    made.transpose_(0, 1)
    return (made * 2).relu() + made


def turned(x: torch.Tensor) -> Any:
    made = x * 2
    made.t_()
    return (made @ x) * 1


def returned(x: torch.Tensor) -> Any:
    made = x * 2
    made.swapaxes_(0, 1)
    return made


def seen_before(x: torch.Tensor) -> Any:
    made = x * 2
    part = made[1:]
    made.t_()
    return part.exp() + made.t()[1:] * 2


def one_of_several(x: torch.Tensor) -> Any:
    made, _, _ = torch.native_layer_norm(x, [8], None, None, 1e-5)
    made.unsqueeze_(0)
    return made.exp() * 2


def padded(x: torch.Tensor) -> Any:
    """By an equivalent, which copies into what it is given."""
    made = nn.functional.pad(x, (1, 1))
    made.transpose_(0, 1)
    return made.exp() * 2


class Calls(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


FUNCTIONS = (
    unsqueezed, squeezed, transposed, turned, returned, seen_before, one_of_several, padded
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_are_those_of_eager_and_nothing_is_resized(
    function: Callable[[torch.Tensor], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    x, model = torch.randn(4, 8), Calls(function)
    expected = function(x)
    program = load_program(model, (x,))
    plan = make_plan(program.graph, "greedy_by_size")
    for policy in ("native", "all"):
        assert same_bits(program.with_module(insert_slab(program, plan, policy=policy)).run((x,)), expected)
    assert same_bits(run_safely(program, plan, (x,)).value, expected)
    runtime = StaticRuntime(model, (x,))
    for _ in range(3):
        assert same_bits(runtime(x), expected)
    measured = compare_run(program, (x,), eager=model)
    assert measured.equality.exact
    assert not measured.differing
    assert "resized" not in capfd.readouterr().err


def test_a_graph_has_the_shapes_that_ops_make() -> None:
    tensors = {tensor.name: tensor for tensor in capture(Calls(unsqueezed), (torch.zeros(4, 8),)).tensors}
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "x": (4, 8), "add": (4, 8), "mul": (4, 8), "unsqueeze_": (1, 4, 8), "add_1": (1, 4, 8),
        "sum_1": (4, 8),
    }  # fmt: skip
    assert tensors["unsqueeze_"].storage == tensors["add"].storage == "add"
    tensors = {tensor.name: tensor for tensor in capture(Calls(transposed), (torch.zeros(4, 8),)).tensors}
    assert (tensors["add"].shape, tensors["add"].strides) == ((4, 8), None)
    assert (tensors["transpose_"].shape, tensors["transpose_"].strides) == ((8, 4), (1, 8))
    graph = capture(Calls(one_of_several), (torch.zeros(4, 8),))
    assert next(one for one in graph.tensors if one.name == "native_layer_norm.0").shape == (4, 8)


def test_symbolic_shapes_are_those_that_ops_make_too() -> None:
    graph = capture(Calls(unsqueezed), (torch.zeros(4, 8),), dynamic_shapes="x:0=rows[2:9]")
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    assert tensors["add"].shape == (4, 8)
    assert len(tensors["add"].formulas) == 2


class Trained(nn.Module):
    """A layer whose result changes its shape twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x) * 2
        made.unsqueeze_(0)
        turned = made.exp() + 1
        turned.transpose_(1, 2)
        return (turned * 2).sum()


@pytest.mark.parametrize("policy", ["native", "all"])
def test_a_training_step_with_changed_shapes(policy: str, capfd: pytest.CaptureFixture[str]) -> None:
    target = run_target_of_step(Trained(), (torch.randn(4, 8),))
    plan = make_plan(target.program.graph, "greedy_by_size")
    run = run_in_plan(target, plan, policy=policy, check=True).run
    assert run.equality.exact
    assert run.check is not None
    assert not run.check.fault
    assert "resized" not in capfd.readouterr().err
