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

from memplan_engine import find_peak, make_plan, observe_model, to_problem
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.run_format import RunFile
from memplan_engine.reporters.observation_tables import observation_summary
from memplan_engine.reporters.run_tables import equality_sentence
from memplan_engine.runtime.eager_step import take_on_copy
from memplan_engine.runtime.loading import run_target_of_step
from memplan_engine.runtime.trial.run_in_plan import run_in_plan
from memplan_engine.torch_capture.torch_run import brief
from memplan_engine.torch_capture.training.torch_recipe import Recipe, kept_by_optimizers
from memplan_engine.torch_capture.training.torch_step import capture_step

X = torch.linspace(-1, 1, 40).view(5, 8)
HERE = "tests/torch_capture/training/test_torch_step_values.py:"


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


def tried(model: nn.Module, recipe: Recipe) -> RunFile:
    target = run_target_of_step(model, (X.clone(),), {}, recipe)
    return run_in_plan(target, make_plan(target.program.graph)).run


def equal_run(build: Callable[[], nn.Module], recipe: Recipe, x: torch.Tensor = X) -> RunFile:
    target = run_target_of_step(build(), (x.clone(),), {}, recipe)
    run = run_in_plan(target, make_plan(target.program.graph), check=True).run
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
    "a norm that counts": (lambda: Net(momentum=None), Recipe("sgd")),
    "an average of weights": (Averaged, Recipe("sgd", step=averaging)),
    "an average of weights, all at once": (
        lambda: Averaged(get_ema_multi_avg_fn(0.9)), Recipe("sgd", step=averaging),
    ),
    "a schedule": (Net, Recipe("adam", step=scheduled)),
    "a schedule of a tensor": (
        Net, Recipe(lambda trained: torch.optim.Adam(trained, torch.tensor(1e-3)), step=scheduled),
    ),
    "a scaler that is off": (Net, Recipe("sgd", step=unscaled)),
}  # fmt: skip


# What these do, another step does too: counts in tensors, all tensors at once, an average, a schedule.
ALIKE = (
    "ASGD, foreach", "NAdam", "RAdam, foreach", "SGD, fused, a tensor", "an average of weights", "a schedule",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in STEPS]
)
def test_values_that_follow_from_counts_are_known(name: str) -> None:
    build, recipe = STEPS[name]
    equal_run(build, recipe)


def test_what_the_optimizers_options_hold_is_a_state_of_the_step() -> None:
    graph = capture_step(Net(), (X,), optimizer=OPTIMIZERS["Adam, tensors"])
    assert {"optimizer.group_0.lr", "optimizer.group_0.betas.0"} <= set(graph.constants)


def test_several_optimizers_and_results_are_compared() -> None:
    run = equal_run(Net, Recipe(two, step=adversaries))
    assert "2 results, 2 outputs" in run.equality.reference
    with pytest.raises(InputError, match=r"optimizer: found 2 of them, expected one, or step="):
        capture_step(Net(), (X,), optimizer=two)


@pytest.mark.slow
def test_optimizers_may_be_made_before_the_step() -> None:
    net = Net()
    run = equal_run(lambda: net, Recipe(two(net.parameters()), step=adversaries))
    assert "2 results, 2 outputs" in run.equality.reference


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

    assert told in equal_run(Net, Recipe("sgd", step=step)).equality.reference


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
    assert "4 outputs" in equal_run(Returns, Recipe("sgd")).equality.reference


def asks(model: nn.Module, optimizer: Any, x: torch.Tensor) -> Any:
    return train(model, optimizer, x).item()


@pytest.mark.parametrize(
    ("recipe", "messages"),
    [
        (Recipe("adam", step=asks), [f"a tensor of shape () (`.item()` or a branch on it) at {HERE}"]),
        (Recipe(torch.optim.Adafactor), ["/_adafactor.py:", "in the optimizer Adafactor, which is not"]),
        (
            Recipe(torch.optim.Adafactor, step=train),
            [f"in the optimizer Adafactor, which takes its step at {HERE}"],
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
        run_target_of_step(Net(), (X.clone(),), {}, recipe)
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
    target = run_target_of_step(model, (X.clone(),), {}, Recipe(), take=other)
    equality = run_in_plan(target, make_plan(target.program.graph)).run.equality
    assert not equality.exact
    assert ("eager itself is not repeatable: two eager" in equality_sentence(equality)) is not stranger


def seeded(model: Any, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    with torch.random.fork_rng():
        torch.manual_seed(-4)
        noise = torch.randn_like(x)
    loss = model(x + noise + torch.rand_like(x))
    loss.backward()
    optimizer.step()
    return loss


def by_type(model: Any, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    loss = model(x) * (2.0 if type(x) is torch.Tensor else 3.0)
    loss.backward()
    optimizer.step()
    return loss


def test_a_step_that_seeds_its_generator_draws_as_eager_does() -> None:
    assert tried(Net(), Recipe(step=seeded)).equality.exact


def test_a_step_that_looks_for_fakes_differs_and_eager_has_no_part_in_it() -> None:
    equality = tried(Net(), Recipe(step=by_type)).equality
    assert not equality.exact
    # A step from other weights, as the run leaves them, would differ from the first one.
    assert equality.unrepeatable == ""
    assert equality.op == "mul"


def by_parameter(model: Any, optimizer: Any, x: torch.Tensor) -> None:
    rates = dict.fromkeys(list(Net().parameters()), 0.1)
    model.last.bias.register_hook(lambda gradient: gradient * rates[model.last.bias])
    train(model, optimizer, x)


def wrong_hook(model: Any, optimizer: Any, x: torch.Tensor) -> None:
    model.last.bias.register_hook(lambda: None)
    train(model, optimizer, x)


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (by_parameter, "found KeyError: Parameter(FakeTensor(..., size=(1,), requires_grad=True)) at tests/"),
        (wrong_hook, "found TypeError: wrong_hook.<locals>.<lambda>() takes 0 positional arguments"),
    ],
)
def test_what_a_step_raises_is_told_with_a_way_out_that_fits(step: Any, found: str) -> None:
    with pytest.raises(InputError) as caught:
        capture_step(Net(), (X,), step=step)
    told = str(caught.value)
    assert found in told
    assert "expected a step that runs on fake tensors as on real ones, or, if it runs eagerly" in told
    assert "memplan observe FACTORY --training step" in told


def test_a_tensor_in_a_message_is_not_cut() -> None:
    error = RuntimeError("Wrapped(value=\n    Fake(size=(6, 4))\n) is not known\nmore")
    assert brief(error) == "RuntimeError: Wrapped(value= Fake(size=(6, 4)) ) is not known"


class Sparse(nn.Module):
    """An embedding whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.ones(20, 8))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(ids, self.rows, sparse=True).sum()


def test_sparse_gradients_are_refused_with_their_line_and_can_be_observed() -> None:
    recipe, ids = Recipe(lambda trained: torch.optim.SparseAdam(trained)), torch.arange(4)
    with pytest.raises(InputError, match=rf"found a sparse tensor at {HERE}\d+, exp"):
        run_target_of_step(Sparse(), (ids,), {}, recipe)
    assert observe_model(Sparse(), (ids,), recipe=recipe).ops


def per_sample(model: Any, optimizer: Any, x: torch.Tensor) -> None:
    def loss(weights: Any, row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (row,)).square().sum()

    weights = {path: each.detach() for path, each in model.named_parameters()}
    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    for path, each in model.named_parameters():
        each.grad = gradients[path].mean(0)
    optimizer.step()


def test_gradients_by_torch_func_are_eagers() -> None:
    equal_run(lambda: nn.Sequential(nn.Linear(8, 4), nn.Tanh()), Recipe("sgd", step=per_sample))


def distilling(model: Any, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    teacher = model.average(x).detach()
    loss = model(x) + (model.net(x) - teacher).square().mean()
    loss.backward()
    optimizer.step()
    model.average.update_parameters(model.net)
    return loss


def test_a_moving_average_in_the_model_is_eagers_and_one_beside_it_is_told_where_to_go() -> None:
    run = equal_run(lambda: Averaged(get_ema_multi_avg_fn(0.9)), Recipe("sgd", step=distilling))
    assert run.difference == 0
    net = Net()
    average = AveragedModel(net)

    def beside(model: Any, optimizer: Any, x: torch.Tensor) -> None:
        train(model, optimizer, x)
        average.update_parameters(model)

    with pytest.raises(InputError, match=r"kept outside of the model at .*, expected a buffer, a submodule"):
        run_target_of_step(net, (X,), {}, Recipe(step=beside))


class Words(nn.Module):
    """A language model of two linear layers and a head, as docs/training.md measures it."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.Linear(64, 2000)]
        self.layers = nn.Sequential(nn.Embedding(2000, 64), *layers)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layers(ids)


def unnamed(model: Any, optimizer: Any, ids: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    optimizer.step()
    return loss


def names_logits(model: Any, optimizer: Any, ids: torch.Tensor) -> torch.Tensor:
    logits = model(ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize(("step", "eager"), [(unnamed, 6_537_224), (names_logits, 8_585_224)])
def test_an_eager_step_holds_what_python_names_and_its_graph_does_not(step: Any, eager: int) -> None:
    ids = torch.arange(256).view(4, 64)
    seen = observation_summary(observe_model(Words(), (ids,), recipe=Recipe(step=step)))
    assert {each["peak_bytes"] for each in seen["peaks"] if each["level"] == "dispatch"} == {eager}
    planned = find_peak(to_problem(capture_step(Words(), (ids,), step=step), alignment=1)).nbytes
    assert planned == 6_537_220


def test_grouped_products_of_experts_are_eagers() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=30, num_local_experts=4, use_cache=False,
    )  # fmt: skip
    ids = torch.arange(20).view(2, 10)
    given = {"input_ids": ids, "labels": ids}
    target = run_target_of_step(transformers.MixtralForCausalLM(config), (), given, Recipe("sgd"))
    run = run_in_plan(target, make_plan(target.program.graph)).run
    assert run.equality.exact, run.equality
    assert run.difference == 0
    assert "memplan.grouped_mm" in run.kinds
