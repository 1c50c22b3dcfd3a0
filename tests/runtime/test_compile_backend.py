"""The backend of torch.compile gives the bits of eager mode, in the bytes that it says."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan_engine import compiled_graphs, memplan_backend
from tests.runtime.compiled_models import (
    MODELS,
    Deep,
    Words,
    built,
    compiled_twin,
    first,
    measured_peak,
    same,
    steps,
)


@pytest.mark.parametrize("options", [{}, {"budget": 0.6}], ids=["once", "again"])
@pytest.mark.parametrize("name", MODELS)
def test_training_steps_have_the_bits_of_eager_ones(name: str, options: dict[str, Any]) -> None:
    model, inputs = built(name)
    twin, call, reports = compiled_twin(model, **options)
    assert same(steps(model, model, inputs), steps(twin, call, inputs))
    assert [(report.training, report.reason) for report in reports] == [(True, "")]


@pytest.mark.parametrize("name", MODELS)
def test_inference_has_the_bits_of_eager_mode_and_keeps_what_it_gave(name: str) -> None:
    model, inputs = built(name)
    _, call, reports = compiled_twin(model.eval())
    with torch.no_grad():
        torch.manual_seed(1)
        expected = model(*inputs)
        torch.manual_seed(1)
        given = call(*inputs)
        other = tuple(value.flip(0) for value in inputs)
        call(*other)
    # Nothing that the second call did is seen in what the first one gave.
    assert same(expected, given)
    assert [(report.training, report.reason) for report in reports] == [(False, "")]


def test_a_training_step_takes_the_bytes_that_were_said_and_fewer_than_eager() -> None:
    class WithLoss(Deep):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).square().mean()

    model, x = WithLoss(12), torch.randn(512, 32)
    twin, call, reports = compiled_twin(model, budget=0.5)

    def step(call: Any) -> None:
        call(x).backward()

    step(call)
    eager, ours = measured_peak(model, lambda: step(model)), measured_peak(twin, lambda: step(call))
    (report,) = reports
    assert report.again > 0
    assert report.capacity is not None
    assert report.saved_bytes < report.peak_after <= report.capacity == report.peak_before // 2
    assert ours < 0.6 * eager
    # The gradient of the loss is not in the graph.
    assert 0 <= ours - report.peak_after <= 16


def test_an_inference_takes_the_bytes_that_were_said_and_fewer_than_eager() -> None:
    class Wide(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = x.repeat(1, 8).exp().add(1).sqrt()
            other = x.repeat(1, 8).neg().sin()
            return wide.sum(1) + other.sum(1)

    model, x = Wide(), torch.randn(64, 64)
    twin, call, reports = compiled_twin(model)
    with torch.no_grad():
        assert torch.equal(model(x), call(x))
        eager, ours = measured_peak(model, lambda: model(x)), measured_peak(twin, lambda: call(x))
    assert ours == reports[0].peak_after < 0.6 * eager


def test_an_inference_runs_ops_again_for_a_capacity() -> None:
    class Held(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = x.repeat(1, 8).exp()
            squares = wide @ wide.t()
            for _ in range(2):
                squares = squares @ squares.repeat(1, 8) @ torch.ones(512, 64)
            return squares @ wide

    model, x = Held(), torch.randn(64, 64)
    twin, call, reports = compiled_twin(model, budget=0.9)
    with torch.no_grad():
        assert torch.equal(model(x), call(x))
        ours = measured_peak(twin, lambda: call(x))
    (report,) = reports
    assert report.again > 0
    assert ours == report.peak_after <= 0.9 * report.peak_before


def test_what_is_written_over_is_so_and_nothing_else() -> None:
    def turn(x: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        kept[1:] = x.sin()[1:]
        return x.exp() + kept, x

    torch._dynamo.reset()
    call = torch.compile(turn, backend=memplan_backend, dynamic=False)
    left, right = ([torch.ones(4, 3), torch.zeros(4, 3)] for _ in range(2))
    for _ in range(2):
        assert same(turn(*left), call(*right))
        assert same(left, right)
    assert call(*right)[1] is right[0]


def test_a_backward_pass_can_be_taken_twice() -> None:
    model, inputs = built("deep")
    twin, call, _ = compiled_twin(model, budget=0.7)
    for each, run in ((model, model), (twin, call)):
        loss = first(run(*inputs))
        loss.backward(retain_graph=True)
        loss.backward()
        assert each.layers[0].weight.grad is not None
    assert same([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])


def test_each_part_between_graph_breaks_is_compiled() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.behind = nn.Linear(5, 5), nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.before(x).relu()
            torch._dynamo.graph_break()
            return self.behind(x).exp()

    torch.manual_seed(0)
    model, inputs = Broken(), (torch.randn(3, 5),)
    twin, call, reports = compiled_twin(model)
    assert same(steps(model, model, inputs), steps(twin, call, inputs))
    assert [report.reason for report in reports] == ["", ""]
    assert all("test_compile_backend.py:" in report.name for report in reports)


def test_other_shapes_are_compiled_anew_or_run_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model = Words(1).eval()
    shapes = [(2, 5), (2, 6), (2, 8)]
    for dynamic, compiled in ((False, 3), (None, 1)):
        torch._dynamo.reset()
        known = len(compiled_graphs())
        call = torch.compile(model, backend=memplan_backend, dynamic=dynamic)
        for shape in shapes:
            words = torch.randint(23, shape)
            assert torch.equal(model(words), call(words))
        reasons = [graph.reason for graph in compiled_graphs()[known:]]
        assert reasons.count("") == compiled
        assert len(reasons) == 3 if dynamic is False else "a size that may change" in reasons[-1]
    assert "runs as it is" in caplog.text
    assert "torch.compile(…, dynamic=False)" in caplog.text


def test_a_checkpointed_model_has_the_bits_of_eager_mode(caplog: pytest.LogCaptureFixture) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def part(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
                return functional.dropout(layer(x).tanh(), 0.3)

            for layer in self.layers:
                x = torch.utils.checkpoint.checkpoint(part, layer, x, use_reentrant=False)
            return x

    torch.manual_seed(0)
    model, inputs = Checkpointed(), (torch.randn(4, 8),)
    for options in ({"budget": 0.9}, {}):
        twin, call, reports = compiled_twin(model, **options)
        fresh = copy.deepcopy(model)
        assert same(steps(fresh, fresh, inputs), steps(twin, call, inputs))
        assert reports[0].reason == ""
        assert ("checkpoints (torch.utils.checkpoint) are not followed" in caplog.text) == (not options)
