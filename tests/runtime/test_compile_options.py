"""Options of the backend of torch.compile, what it says of each graph, and what it leaves as it is."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends import registry

from memplan_engine import CompiledGraph, InputError, compiled_graphs, memplan_backend
from memplan_engine.runtime.compiling import backend
from tests import ROOT
from tests.runtime.compiled_models import Deep, built, compiled_twin, first, same, steps


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"capcity": 1}, "options: found 'capcity', expected some of budget, capacity"),
        ({"capacity": "2 apples"}, "capacity: found '2 apples', expected a number of bytes, as 2147483648"),
        ({"capacity": -1}, "capacity: found '-1', expected a number of bytes"),
        ({"capacity": True}, "capacity: found True, expected a number of bytes"),
        ({"budget": 0}, "budget: found 0, expected a share of the peak, above 0 and at most 1"),
        ({"budget": 1.5}, "budget: found 1.5, expected a share of the peak"),
        ({"budget": 0.5, "capacity": 9}, "options: found capacity and budget, expected one of them"),
        ({"seconds": "long"}, "seconds: found 'long', expected a number of seconds above 0"),
        ({"device": "abacus"}, "device: found"),
        ({"on_report": 7}, "on_report: found 7, expected a function of a CompiledGraph"),
    ],
)
def test_options_that_cannot_be_read_are_said_as_they_are(options: dict[str, Any], said: str) -> None:
    torch._dynamo.reset()
    call = torch.compile(nn.Linear(2, 2), backend=memplan_backend, options=options)
    with pytest.raises(InputError, match=r"torch\.compile, backend memplan: ") as caught:
        call(torch.ones(2))
    assert said in str(caught.value)


def test_the_name_that_torch_knows_is_this_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    named = group["torch_dynamo_backends"]["memplan"]
    torch._dynamo.list_backends()
    monkeypatch.setitem(registry._BACKENDS, "memplan", EntryPoint("memplan", named, "torch_dynamo_backends"))
    monkeypatch.delitem(registry._COMPILER_FNS, "memplan", raising=False)
    torch._dynamo.reset()
    reports: list[CompiledGraph] = []
    model = nn.Linear(3, 2)
    options = {"capacity": "1MiB", "on_report": reports.append}
    call = torch.compile(model, backend="memplan", options=options)
    assert torch.equal(call(torch.ones(3)), model(torch.ones(3)))
    assert registry._COMPILER_FNS["memplan"] is memplan_backend
    assert [report.capacity for report in reports] == [1 << 20]
    assert compiled_graphs()[-1] is reports[0]
    monkeypatch.delitem(registry._COMPILER_FNS, "memplan")


def test_a_capacity_that_nothing_keeps_to_is_said_with_what_is_needed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, inputs = Deep(), (torch.randn(64, 32),)
    twin, call, _ = compiled_twin(model, capacity="1KiB")
    caplog.set_level("WARNING")
    assert same(steps(model, model, inputs), steps(twin, call, inputs))
    report = compiled_graphs()[-1]
    assert not report.is_within
    assert 1024 < report.least_bytes <= report.peak_after < report.peak_before
    assert f"{report}; the capacity is 1 KiB (1,024 B), and every schedule needs" in caplog.text


class Doubled(torch.autograd.Function):
    """Dynamo gives it to the backend as an operator that calls graphs of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return 3 * grad


def test_what_fails_in_the_backend_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(backend, "cut", failing)
    model, inputs = built("pictures")
    twin, call, reports = compiled_twin(model)
    assert same(steps(model, model, inputs), steps(twin, call, inputs))
    assert [report.reason for report in reports] == ["RuntimeError: no such luck"]
    assert not reports[0].is_within
    assert "compiled_models.py:" in caplog.text
    assert "runs as it is: RuntimeError: no such luck" in caplog.text


def test_operators_that_call_graphs_run_as_they_are() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    torch._dynamo.reset()
    call = torch.compile(choose, backend=memplan_backend)
    for sign in (1, -1):
        assert torch.equal(call(sign * torch.ones(3)), choose(sign * torch.ones(3)))
    assert "cond, which calls graphs of its own" in compiled_graphs()[-1].reason


@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_what_has_another_gradient_when_traced_runs_as_it_is(name: str) -> None:
    class Product(Deep):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return getattr(self.layers[0](x), name)(1)

    torch.manual_seed(0)
    model, inputs = Product(1), (torch.randn(64, 32),)
    twin, call, reports = compiled_twin(model)
    assert same(steps(model, model, inputs), steps(twin, call, inputs))
    assert f"aten.{name}, whose gradient has other last digits" in reports[0].reason


def test_own_functions_of_autograd_have_their_gradients() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Doubled.apply(self.inner(x).exp())

    torch.manual_seed(0)
    model, inputs = Own(), (torch.randn(3, 4),)
    twin, call, reports = compiled_twin(model, budget=0.9)
    assert same(steps(model, model, inputs), steps(twin, call, inputs))
    assert reports


def test_an_operator_of_which_nobody_knows_whether_it_draws_runs_once() -> None:
    calls = []

    @torch.library.custom_op("memplan_tests::noise", mutates_args=())
    def noise(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + torch.rand_like(x)

    noise.register_fake(torch.empty_like)
    noise.register_autograd(lambda ctx, grad: grad)

    class Noisy(Deep):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = noise(torch.tanh(layer(x)).sin())
            return x

    torch.manual_seed(0)
    model, inputs = Noisy(5), (torch.randn(64, 32),)
    twin, call, reports = compiled_twin(model, budget=0.8)
    assert same(steps(model, model, inputs), steps(twin, call, inputs))
    assert reports[0].again > 0
    assert len(calls) == 2 * 2 * 5


def test_a_buffer_that_the_step_writes_over_is_read_before() -> None:
    class Counting(Deep):
        def __init__(self) -> None:
            super().__init__(4)
            self.seen: torch.Tensor
            self.register_buffer("seen", torch.ones(64, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scales = [self.seen.exp() for _ in self.layers]
            self.seen.add_(x)
            for layer, scale in zip(self.layers, scales, strict=True):
                x = layer(x) * scale
            return x

    torch.manual_seed(0)
    model, inputs = Counting(), (torch.randn(64, 32),)
    twin, call, reports = compiled_twin(model, budget=0.9)
    assert same(steps(model, model, inputs), steps(twin, call, inputs))
    assert reports[0].again > 0
    assert first(call(*inputs)).requires_grad
