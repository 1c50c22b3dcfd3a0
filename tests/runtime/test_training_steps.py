"""Where a training step ends in scripts with several optimizers, against real runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine.recordings.observed_flow import flow_peak, state_bytes
from memplan_engine.runtime.recorder.fake_run import observe_whole
from tests.runtime.test_fake_habits import Kept, Lives, kept_storages, measured, measured_whole

STEPS = 3


def net(width: int = 16) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
    )


def backward(model: nn.Module) -> None:
    model(torch.rand(4, 8)).sum().backward()


def take_step(model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    backward(model)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def one_for_each_parameter() -> Kept:
    model = net()
    optimizers: dict[Any, Any] = {each: torch.optim.Adam([each]) for each in model.parameters()}

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(update)
    for _ in range(STEPS):
        backward(model)
    return [model, *optimizers.values()]


def one_for_each_layer() -> Kept:
    model = net()
    optimizers = [torch.optim.Adam(layer.parameters()) for layer in list(model)[::2]]
    for _ in range(STEPS):
        take_step(model, *optimizers)
    return [model, *optimizers]


def models_in_turn(*every: int) -> Kept:
    """Model k is updated every `every[k]` steps, the largest last."""
    models = [net(16 * (1 + place)) for place in range(len(every))]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    for step in range(STEPS * max(every)):
        for model, optimizer, each in zip(models, optimizers, every, strict=True):
            if step % each == each - 1:
                optimizer.zero_grad()
                backward(model)
                optimizer.step()
    return [*models, *optimizers]


def adversaries() -> Kept:
    return models_in_turn(1, 1, 1, 1)


def critic_more_often() -> Kept:
    return models_in_turn(1, 5)


class Around(torch.optim.Optimizer):
    """An optimizer that leaves the update to another one."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner, self.state = inner, inner.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.detach() * 2


def one_around_another() -> Kept:
    model = net()
    optimizer = Around(torch.optim.Adam(model.parameters()))
    for _ in range(STEPS):
        take_step(model, optimizer)
    return [model, optimizer]


def a_new_one_each_time() -> Kept:
    model = net()
    for _ in range(STEPS):
        optimizer = torch.optim.Adam(model.parameters())
        take_step(model, optimizer)
    return [model, optimizer]


def accumulated() -> Kept:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        for _ in range(4):
            take_step(model, optimizer)
    return [model, optimizer]


def recorded(case: Any) -> Any:
    flow = observe_whole(case, case.__name__, "a run", most_steps=STEPS).flow
    assert flow is not None
    return flow


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        (one_for_each_parameter, 3),
        (one_for_each_layer, 3),
        (adversaries, 3),
        (critic_more_often, 5),
        (one_around_another, 3),
        (accumulated, 3),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_steps_of_several_optimizers_hold_what_real_ones_do(case: Any, steps: int) -> None:
    """Recorded up to its third step, or to the first of the slowest optimizer, a run has the peak and the
    state of the whole one."""
    flow = recorded(case)
    with Lives() as lives:
        kept = case()
    stays = kept_storages(kept)
    state = sum(nbytes for ref, nbytes, _, gone in lives.rows if gone is None and ref.cdata in stays)
    assert flow.steps == steps
    assert flow_peak(flow)[0] == measured(case)
    assert state_bytes(flow) == state


def test_state_that_takes_the_place_of_older_state_is_counted_once() -> None:
    flow = recorded(a_new_one_each_time)
    assert flow.steps == 3
    assert flow_peak(flow)[0] + state_bytes(flow) == measured_whole(a_new_one_each_time)


def test_an_optimizer_that_never_steps_is_named() -> None:
    def never_second() -> Kept:
        models = [net(), net(64)]
        optimizers = [torch.optim.Adam(models[0].parameters()), torch.optim.RMSprop(models[1].parameters())]
        for _ in range(50):
            backward(models[0])
            optimizers[0].step()
            optimizers[0].zero_grad()
        return [*models, *optimizers]

    flow = recorded(never_second)
    assert flow.steps == 12
    note = "RMSprop, which updates nothing in 12 training steps, as never used"
    assert note in flow.assumed
    assert note in flow.doubts
