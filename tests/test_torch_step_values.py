"""Steps whose values follow from counts, optimizers of all kinds and forms, and what a step may return."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from memplan_engine import make_plan
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.run_format import RunFile
from memplan_engine.reporters.run_words import equality_sentence
from memplan_engine.runtime.eager_step import take_on_copy
from memplan_engine.runtime.trial.run_in_plan import try_plan
from memplan_engine.runtime.trial.run_targets import subject_of_step
from memplan_engine.torch_capture.training.torch_recipe import Recipe, kept_by_optimizers
from memplan_engine.torch_capture.training.torch_step import capture_step

X = torch.linspace(-1, 1, 40).view(5, 8)


class Net(nn.Module):
    """Two linear layers with a norm between them."""

    def __init__(self, momentum: float | None = 0.1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = (
            nn.Linear(8, 8),
            nn.BatchNorm1d(8, momentum=momentum),
            nn.Linear(8, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).relu()).square().mean()


class Averaged(nn.Module):
    """A net and an average of its weights."""

    def __init__(self, multi: Any = None) -> None:
        super().__init__()
        self.net = Net()
        self.average = AveragedModel(self.net, multi_avg_fn=multi)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Nested(torch.optim.Optimizer):
    """Keeps what it keeps in lists and dicts, with a count that is asked for; `anew` replaces its tensors."""

    def __init__(self, trained: Any, anew: bool = False) -> None:
        super().__init__(trained, {"lr": 0.1})
        self.anew = anew

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Momentum, and a rate that falls."""
        for parameter in self.param_groups[0]["params"]:
            kept = self.state[parameter]
            if not kept:
                kept["all"] = [torch.zeros_like(parameter), {"count": torch.zeros(())}]
            momentum, counts = kept["all"]
            counts["count"].add_(1)
            if self.anew:
                kept["all"][0] = momentum = momentum * 0.9
            parameter.sub_(momentum.mul_(0.9).add_(parameter.grad), alpha=0.1 / counts["count"].item())


def train(model: nn.Module, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    loss = model(x)
    loss.backward()
    optimizer.step()
    return loss


def averaging(model: Averaged, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    loss = train(model, optimizer, x)
    model.average.update_parameters(model.net)
    return loss


def scheduled(model: nn.Module, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(optimizer, "schedule"):
        optimizer.schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    loss = train(model, optimizer, x)
    optimizer.schedule.step()
    return loss


def unscaled(model: nn.Module, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    loss = model(x)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return loss


def adversaries(model: Net, optimizers: Any, x: torch.Tensor) -> dict[str, Any]:
    """Each of two optimizers has its own loss."""
    first, last = optimizers["first"], optimizers["last"]
    one = model(x)
    one.backward()
    last.step()
    first.zero_grad()
    last.zero_grad()
    other = -model(x)
    other.backward()
    first.step()
    return {"losses": [one.detach(), other.detach()], "ratio": 1.0}


def two(trained: Any) -> dict[str, torch.optim.Optimizer]:
    trained = list(trained)
    first = torch.optim.Adam(trained[:4], lr=torch.tensor(1e-3))
    return {"first": first, "last": torch.optim.SGD(trained[4:], 0.1, momentum=0.9)}


def equal_run(build: Callable[[], nn.Module], recipe: Recipe, x: torch.Tensor = X) -> RunFile:
    subject = subject_of_step(build(), (x.clone(),), {}, recipe)
    run = try_plan(subject, make_plan(subject.program.graph), check=True).run
    assert run.equality.exact, run.equality
    assert run.check.fault == ""
    return run


OPTIMIZERS: dict[str, Any] = {
    "ASGD": torch.optim.ASGD,
    "ASGD, foreach": functools.partial(torch.optim.ASGD, foreach=True),
    "NAdam": torch.optim.NAdam,
    "RAdam, foreach": functools.partial(torch.optim.RAdam, foreach=True),
    "Adam, tensors": lambda trained: torch.optim.Adam(
        trained, torch.tensor(1e-3), betas=(torch.tensor(0.9), torch.tensor(0.99))
    ),
    "SGD, fused, a tensor": lambda trained: torch.optim.SGD(trained, torch.tensor(1e-3), fused=True),
    "nested": Nested,
}
STEPS: dict[str, tuple[Any, Recipe]] = {
    **{name: (Net, Recipe(make)) for name, make in OPTIMIZERS.items()},
    "a norm that counts": (lambda: Net(momentum=None), Recipe("adam")),
    "an average of weights": (Averaged, Recipe("sgd", step=averaging)),
    "an average of weights, all at once": (
        lambda: Averaged(get_ema_multi_avg_fn(0.9)), Recipe("sgd", step=averaging),
    ),
    "a schedule": (Net, Recipe("adam", step=scheduled)),
    "a schedule of a tensor": (
        Net, Recipe(lambda trained: torch.optim.Adam(trained, torch.tensor(1e-3)), step=scheduled),
    ),
    "a scaler that is off": (Net, Recipe("adam", step=unscaled)),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_values_that_follow_from_counts_are_known(name: str) -> None:
    build, recipe = STEPS[name]
    equal_run(build, recipe)


def test_what_the_optimizers_options_hold_is_a_state_of_the_step() -> None:
    graph = capture_step(Net(), (X,), optimizer=OPTIMIZERS["Adam, tensors"])
    assert {"optimizer.group_0.lr", "optimizer.group_0.betas.0"} <= set(graph.constants)


def test_several_optimizers_and_results_are_compared() -> None:
    run = equal_run(Net, Recipe(two, step=adversaries))
    assert "2 results, 2 outputs" in run.equality.reference
    net = Net()
    run = equal_run(lambda: net, Recipe(two(net.parameters()), step=adversaries))
    assert "2 results, 2 outputs" in run.equality.reference
    with pytest.raises(InputError, match=r"optimizer: found 2 of them, expected one, or step="):
        capture_step(Net(), (X,), optimizer=two)


@pytest.mark.parametrize(
    ("give", "told"),
    [
        (lambda loss: (loss.detach(), {"twice": 2 * loss}), "2 results"),
        (lambda loss: 1.5, "0 results"),
        (lambda loss: None, "0 results"),
    ],
    ids=["nested", "number", "nothing"],
)
def test_a_step_returns_what_it_likes(give: Any, told: str) -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor) -> Any:
        return give(train(model, optimizer, x))

    assert told in equal_run(Net, Recipe("adam", step=step)).equality.reference


class Returns(nn.Module):
    """Returns a weight, its input, and what is written before and after it returns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x.mul_(2)
        y = self.linear(x)
        part = y.detach().clone()
        part[0] = 7
        return {"loss": y.square().mean(), "weight": self.linear.weight, "x": x, "part": part}


def test_outputs_that_are_weights_or_inputs_are_compared_as_they_were_returned() -> None:
    assert "4 outputs" in equal_run(Returns, Recipe("adam")).equality.reference


def asks(model: nn.Module, optimizer: Any, x: torch.Tensor) -> Any:
    return train(model, optimizer, x).item()


@pytest.mark.parametrize(
    ("recipe", "messages"),
    [
        (Recipe("adam", step=asks), ["a tensor of () (`.item()` or a branch on it) at tests/test_"]),
        (Recipe(torch.optim.Adafactor), ["/_adafactor.py:", "in the optimizer Adafactor, which is not"]),
        (
            Recipe(torch.optim.Adafactor, step=train),
            ["in the optimizer Adafactor, which takes its step at tests/test_torch_step_values.py:"],
        ),
        (
            Recipe(functools.partial(Nested, anew=True)),
            ["tensor 'first.weight.all.0': found one that a step replaces"],
        ),
    ],
    ids=["a loss", "an optimizer", "an optimizer in a step", "rebound state"],
)  # fmt: skip
def test_values_of_weights_are_refused_in_plain_words(recipe: Recipe, messages: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        subject_of_step(Net(), (X.clone(),), {}, recipe)
    for message in messages:
        assert message in str(caught.value)


def test_what_optimizers_share_is_kept_once() -> None:
    rate = torch.tensor(1e-3)
    optimizer = torch.optim.Adam([{"params": [nn.Parameter(X)]}, {"params": [nn.Parameter(X)]}], lr=rate)
    assert [(owner, key) for owner, key, _ in kept_by_optimizers([optimizer])] == [(None, "group_0.lr")]


class Ticks(nn.Module):
    """Multiplies by how often any step has run before: no two are alike."""

    clock = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).square().mean() * next(Ticks.clock)


@pytest.mark.parametrize("stranger", [False, True], ids=["a clock", "a wrong capture"])
def test_an_eager_step_that_is_not_repeatable_is_told_apart_from_a_wrong_capture(stranger: bool) -> None:
    model = Net() if stranger else Ticks()
    other = (lambda watched: take_on_copy(Net(None), (X,), {}, Recipe(), "net")) if stranger else None
    subject = subject_of_step(model, (X.clone(),), {}, Recipe(), take=other)
    equality = try_plan(subject, make_plan(subject.program.graph)).run.equality
    assert not equality.exact
    assert ("eager itself is not repeatable: two eager" in equality_sentence(equality)) is not stranger


def test_grouped_products_of_experts_are_eagers() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=30, num_local_experts=4, use_cache=False,
    )  # fmt: skip
    ids = torch.arange(20).view(2, 10)
    given = {"input_ids": ids, "labels": ids}
    subject = subject_of_step(transformers.MixtralForCausalLM(config), (), given, Recipe("adam"))
    run = try_plan(subject, make_plan(subject.program.graph)).run
    assert run.equality.exact, run.equality
    assert run.difference == 0
    assert "memplan.grouped_mm" in run.kinds
