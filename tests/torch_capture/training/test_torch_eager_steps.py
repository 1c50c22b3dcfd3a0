"""Captured training steps against eager ones: the user's own Functions, hooks, checkpoints and optimizers."""

from __future__ import annotations

import copy
import functools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from memplan_engine import make_plan
from memplan_engine.analysis.peak import find_peak
from memplan_engine.errors import InputError
from memplan_engine.graph import Phase
from memplan_engine.lifetimes import to_problem
from memplan_engine.runtime.eager_step import take_on_copy
from memplan_engine.runtime.loading import run_target_of_step
from memplan_engine.runtime.trial.run_in_plan import run_in_plan
from memplan_engine.torch_capture.training.torch_recipe import (
    Recipe,
    carry_hooks,
    make_optimizer,
    take_step,
)
from memplan_engine.torch_capture.training.torch_step import capture_step
from memplan_engine.torch_capture.training.torch_training import capture_training
from tests.support.measured import measure_call

X = torch.linspace(-1, 1, 40).view(5, 8)


class Reversed(torch.autograd.Function):
    """Gradient reversal."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


class Straight(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def saves_products(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    saved = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


class Net(nn.Module):
    """Two linear layers, with a norm and dropout between them, and one way of having autograd do more."""

    def __init__(self, way: str = "plain") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.way = way

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.norm(self.first(x)).relu(), 0.3, self.training)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.way == "re-entrant checkpoint":
            hidden = checkpoint(self.body, x.requires_grad_(), use_reentrant=True)
        elif self.way == "checkpoint":
            hidden = checkpoint(self.body, x, use_reentrant=False)
        elif self.way == "selective checkpoint":
            policy = functools.partial(create_selective_checkpoint_contexts, saves_products)
            hidden = checkpoint(self.body, x, use_reentrant=False, context_fn=policy)
        else:
            hidden = self.body(x)
        if self.way == "reversal":
            hidden = Reversed.apply(hidden)
        elif self.way == "straight-through":
            hidden = Straight.apply(hidden)
        elif self.way == "tensor hook":
            hidden.register_hook(lambda gradient: -gradient)
        y = self.last(hidden)
        loss = y.square().mean()
        if self.way == "gradient penalty":
            (gradient,) = torch.autograd.grad(y.sum(), hidden, create_graph=True)
            loss = loss + gradient.square().sum()
        return {"loss": loss, "y": y}


def doubled(weight: torch.Tensor) -> None:
    weight.grad.mul_(2)


def hooked() -> Net:
    net = Net()
    net.first.weight.register_hook(lambda gradient: 3 * gradient)
    net.last.weight.register_post_accumulate_grad_hook(doubled)
    net.norm.register_full_backward_hook(lambda module, given, gradients: (-given[0],))  # type: ignore[index]
    return net


class Recurrent(nn.Module):
    """A recurrent layer and a linear one."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.last = layer, nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(x)[0]).square().mean()


class Segments(nn.Module):
    """Re-entrant checkpoints of the first layers, one in another: gradients only come through the input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.GELU()) for _ in range(3)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return self.layers[1](y).sin()

        def outer(y: torch.Tensor) -> torch.Tensor:
            return checkpoint(inner, self.layers[0](y), use_reentrant=True).cos()

        x = checkpoint(outer, x, use_reentrant=True)
        return checkpoint_sequential(self.layers, 2, x, use_reentrant=True).square().sum()


def own_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x)["loss"]
        loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.01)
    optimizer.step()
    return loss.detach()


WAYS = (
    "plain", "reversal", "straight-through", "tensor hook", "gradient penalty", "checkpoint",
    "re-entrant checkpoint", "selective checkpoint",
)  # fmt: skip
STEPS: dict[str, tuple[Any, Any, Recipe]] = {
    **{way: (functools.partial(Net, way), X, Recipe("sgd")) for way in WAYS},
    "hooks of parameters and modules": (hooked, X, Recipe("sgd")),
    "foreach, clipped, accumulated": (
        Net, X, Recipe("adamw", foreach=True, clip_grad_norm=0.1, accumulate=3),
    ),
    "fused": (Net, X, Recipe(lambda trained: torch.optim.Adam(trained, fused=True))),
    "nesterov": (Net, X, Recipe(lambda trained: torch.optim.SGD(trained, 0.1, momentum=0.9, nesterov=True))),
    "own step under autocast": (Net, X, Recipe("adam", step=own_step)),
    "nested re-entrant checkpoints": (Segments, X.clone().requires_grad_(), Recipe("sgd")),
    "lstm": (
        lambda: Recurrent(nn.LSTM(8, 6, num_layers=2, bidirectional=True, dropout=0.2), 12),
        X.view(5, 2, 4).repeat(1, 1, 2), Recipe(),
    ),
    "lstm without biases": (
        lambda: Recurrent(nn.LSTM(8, 6, bias=False, batch_first=True), 6), X.view(1, 5, 8), Recipe(),
    ),
    "gru": (lambda: Recurrent(nn.GRU(8, 6), 6), X.view(5, 1, 8), Recipe()),
}  # fmt: skip


# Other tests take the ways of these: `straight-through` is a Function as `reversal` is.
ALIKE = ("plain", "straight-through", "checkpoint", "nesterov", "lstm without biases")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in STEPS]
)
def test_a_captured_step_is_the_one_that_eager_takes(name: str) -> None:
    """Loss, outputs, gradients, weights, buffers and the optimizer's state, bit for bit; and the bytes."""
    build, x, recipe = STEPS[name]
    model = build()
    before = copy.deepcopy(model.state_dict())
    target = run_target_of_step(
        model, (x.detach().clone().requires_grad_(x.requires_grad),), {}, recipe, name=name
    )
    run = run_in_plan(target, make_plan(target.program.graph), check=True).run
    assert run.equality.exact, run.equality
    assert run.check.fault == ""
    assert run.difference == 0
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_gradients_that_only_eager_has_would_be_told() -> None:
    """The comparison is one that fails: here the eager step is another model's."""
    target = run_target_of_step(
        Net("reversal"), (X,), {}, Recipe(), take=lambda watched: stranger(watched), name="net"
    )
    run = run_in_plan(target, make_plan(target.program.graph)).run
    assert not run.equality.exact
    assert not run.passed
    assert run.equality.largest > 0  # type: ignore[operator]
    # The first op that the other model does not have.
    assert run.equality.op == "view"


def stranger(watched: bool) -> Any:
    return take_on_copy(Net(), (X,), {}, Recipe(), "stranger", watched=watched)


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint",
        pytest.param("foreach, clipped, accumulated", marks=pytest.mark.slow),
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("plain", "gru")),
    ],
)
def test_the_planned_peak_is_that_of_an_eager_step(name: str) -> None:
    """Measured by an observer of the user's own loop. Python names some values longer than their last use:
    the loss and outputs here."""
    build, x, recipe = STEPS[name]
    # So large that the generator's state, which a checkpoint keeps outside of tensors, weighs nothing.
    x = x.repeat(800, *(1 for _ in x.shape[1:])) if x.dim() == 2 else x.repeat(1, 800, 1)
    model = build()
    wide = copy.deepcopy(model)
    optimizer = make_optimizer(recipe, wide, name)

    def step() -> None:
        wide.zero_grad(set_to_none=True)
        take_step(recipe, wide, optimizer, (x,), {}, name)

    step()
    state = [list(kept.values()) for kept in optimizer.state.values()]
    wide.zero_grad(set_to_none=True)
    given = (list(wide.parameters()), list(wide.buffers()), x, state)
    eager = measure_call(step, given)
    planned = find_peak(to_problem(capture_step(model, (x,), **options(recipe)), alignment=1)).nbytes
    # What GRU's loop over time steps names, it holds; a graph does not.
    assert planned == pytest.approx(eager, rel=0.15 if name == "gru" else 0.02)


def options(recipe: Recipe) -> dict[str, Any]:
    return {
        "optimizer": recipe.optimizer,
        "foreach": recipe.foreach,
        "accumulate": recipe.accumulate,
        "clip_grad_norm": recipe.clip_grad_norm,
    }


def test_a_checkpoint_runs_its_forward_again_in_the_backward_phase() -> None:
    plain, again = (capture_step(Net(way), (X,)) for way in ("plain", "checkpoint"))
    kinds = [op.kind for op in again.ops if op.phase is Phase.BACKWARD]
    assert kinds.count("aten.native_batch_norm") == 1
    assert "aten.native_batch_norm" not in [op.kind for op in plain.ops if op.phase is Phase.BACKWARD]
    rerun = next(op for op in again.ops if op.kind == "aten.native_batch_norm" and op.phase is Phase.BACKWARD)
    assert rerun.module == "norm"
    # The second mask of a dropout is the first one's: the generator's state is kept and put back.
    assert [op.kind for op in again.ops].count("memplan.set_rng_state") == 2


def test_phases_and_lines_of_what_a_step_does_beside_forward_and_backward() -> None:
    graph = capture_step(Net(), (X,), optimizer="adamw", foreach=True, clip_grad_norm=1.0, accumulate=2)
    phases = [op.phase for op in graph.ops]
    assert phases.index(Phase.BACKWARD) < max(at for at, each in enumerate(phases) if each is Phase.FORWARD)
    clipping = next(op for op in graph.ops if op.kind == "aten.linalg_vector_norm")
    assert clipping.phase is Phase.OPTIMIZER
    reversal = capture_step(Net("reversal"), (X,))
    (neg,) = [op for op in reversal.ops if op.kind == "aten.neg"]
    assert neg.source.code == "return -gradient"
    assert neg.phase is Phase.BACKWARD


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Net("reversal"), "the custom autograd.Function Reversed at "),
        (Net("tensor hook"), "a hook of a tensor at "),
        (Net("gradient penalty"), "an inner autograd.grad at "),
        (Net("re-entrant checkpoint"), "a re-entrant checkpoint at "),
        (hooked(), "a hook of the parameter first.weight, which"),
    ],
    ids=["function", "hook", "inner gradient", "re-entrant", "parameter"],
)
def test_what_an_export_would_drop_is_refused_with_its_line(model: nn.Module, message: str) -> None:
    with pytest.raises(InputError) as caught:
        capture_training(model, (X.clone(),))
    assert f"Net: gradients: found {message}" in str(caught.value)
    assert "test_torch_eager_steps.py:" in str(caught.value) or "parameter" in message
    assert "--training step" in str(caught.value)


def test_a_checkpoint_that_figures_leave_out_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        capture_training(Net("checkpoint"), (X,))
    (line,) = [record.getMessage() for record in caplog.records if "leave out" in record.getMessage()]
    assert "these figures leave out a checkpoint at" in line
    assert "test_torch_eager_steps.py:" in line


def test_a_step_that_needs_values_is_refused_with_its_line_and_a_way_out() -> None:
    class Branches(Net):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            output = super().forward(x)
            return output if output["loss"].item() > 0 else {"loss": -output["loss"]}

    with pytest.raises(InputError) as caught:
        capture_step(Branches(), (X,))
    assert "test_torch_eager_steps.py:" in str(caught.value)
    assert "memplan observe" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"accumulate": 0}, "accumulate: found 0, expected a whole number from 1 on"),
        ({"clip_grad_norm": -1.0}, "clip_grad_norm: found -1.0, expected a norm above 0"),
        ({"optimizer": 3}, "optimizer: found a int, expected a name"),
        ({"optimizer": lambda trained: 1}, "optimizer: found a function that gives a int"),
        (
            {"optimizer": torch.optim.SGD([nn.Parameter(X)]), "foreach": True},
            "foreach: found an optimizer made",
        ),
        ({"step": own_step, "accumulate": 2}, "step: found loss, accumulate or clip_grad_norm, too"),
        ({"optimizer": [1], "step": own_step}, "optimizer: found a list, expected a name"),
    ],
    ids=["accumulate", "clip", "optimizer", "maker", "foreach", "step", "no optimizers"],
)
def test_recipes_that_make_no_sense_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=r"^Net: ") as caught:
        capture_step(Net(), (X,), **wrong)
    assert message in str(caught.value)


def test_an_optimizer_that_has_taken_steps_is_captured_and_left_alone() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    model(X)["loss"].backward()
    optimizer.step()
    weights = copy.deepcopy(model.state_dict())
    graph = capture_step(model, (X,), optimizer=optimizer)
    assert sum(name.endswith(".exp_avg") for name in graph.constants) == 6
    state = next(iter(optimizer.state.values()))
    assert state["step"].item() == 1
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    run = run_in_plan(
        (target := run_target_of_step(model, (X,), {}, Recipe(optimizer))), make_plan(target.program.graph)
    )
    assert run.run.equality.exact


def test_hooks_go_with_copies() -> None:
    weight, twin = (nn.Parameter(torch.ones(2)) for _ in range(2))
    weight.register_hook(lambda gradient: gradient * 5)
    carry_hooks(weight, twin)
    twin.sum().backward()
    assert twin.grad.tolist() == [5, 5]


FACTORIES = """
import torch
from torch import nn

class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, gradient):
        return -gradient

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
    def forward(self, x):
        return self.b(Reversed.apply(self.a(x)))

def net():
    return {"model": Net(), "args": (torch.randn(3, 8),), "loss": lambda y: y.square().mean(),
            "optimizer": lambda trained: torch.optim.RMSprop(trained, 0.1), "clip_grad_norm": 0.5}

class Late(Net):
    def forward(self, x):
        if type(self.a.weight.data) is torch.Tensor and not torch._C._get_dispatch_mode(
            torch._C._TorchDispatchModeKey.FAKE
        ):
            return super().forward(x) * 2
        return super().forward(x)

def late():
    return Late(), (torch.randn(3, 8),)"""


@pytest.mark.slow
def test_the_command_line_compares_with_a_process_of_its_own(memplan: Any, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(FACTORIES)
    code, out, err = memplan("run", "m.py:net", "--training", "step", "--check", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["equality"]["exact"]
    assert found["equality"]["reference"] == (
        "the second eager step (loss, 1 output, 4 gradients, 12 tensors of state)"
    )


@pytest.mark.slow
def test_an_op_that_eager_mode_alone_has_is_found(memplan: Any, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(FACTORIES)
    code, out, _ = memplan("run", "m.py:late", "--training", "step", "--json")
    assert code == 1
    found = json.loads(out)["equality"]
    assert not found["exact"]
    assert found["op"]
