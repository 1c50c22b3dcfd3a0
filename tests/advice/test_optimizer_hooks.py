"""The optimizer moved into the backward pass of a source: which lines it becomes, and what forbids it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from memplan_engine import Preparation, make_plan, observation_graph, observe_fake, prepare
from memplan_engine.advice.fit_stages import StageName, stages_for
from memplan_engine.advice.optimizer_hooks import NO_STEP, update_in_backward
from memplan_engine.advice.planning_changes import propose_early_updates
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.source_edits import Edited
from memplan_engine.graph import Phase
from tests.advice.test_source_edits import FILE, graph_of

STEP = """def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x)
    loss.backward()
    count(loss)
    optimizer.step()
    return loss
"""
MOVED = """def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x)
    def update_now(parameter):
        optimizer.step()
        parameter.grad = None
    owned = [each for group in optimizer.param_groups for each in group["params"]]
    owned = [each for each in owned if each.requires_grad]
    hooks = [each.register_post_accumulate_grad_hook(update_now) for each in owned]
    loss.backward()
    for hook in hooks:
        hook.remove()
    count(loss)
    return loss
"""


def moved(text: str, *lines: int) -> Edited:
    """`text` edited for a graph whose optimizer has an op in each of `lines`."""
    graph = graph_of(text, *((line, "add", "x", f"new{line}") for line in lines))
    ops = tuple(replace(op, phase=Phase.OPTIMIZER) for op in graph.ops)
    return update_in_backward(text, FILE, replace(graph, ops=ops))


def test_the_optimizer_goes_into_hooks_that_end_with_the_backward_pass() -> None:
    edited = moved(STEP, 6)
    assert edited.text == MOVED
    assert (edited.lines, edited.left, edited.frees_gradients) == ((4, 6), (), True)


def test_names_that_the_file_has_are_left_to_it() -> None:
    edited = moved(STEP.replace("count(loss)", "hooks = hook = loss"), 6)
    assert "    for hook_ in hooks_:\n        hook_.remove()\n" in edited.text


@pytest.mark.parametrize(
    ("text", "lines", "left"),
    [
        (STEP, (3,), (0, NO_STEP)),
        (STEP.replace("loss.backward()", "grads(loss)"), (6,), (6, "no backward() before it")),
        (STEP.replace("loss.backward()", "loss.backward(); more(loss)"), (6,), (6, "not a statement on a")),
        (STEP.replace("optimizer.step()", "other = 1; optimizer.step()"), (6,), (6, "not a statement on a")),
        (STEP.replace("count(loss)", "second.step()"), (5, 6), (5, "several calls of step()")),
        (STEP.replace("optimizer.step()", "optimizer.step(closure)"), (6,), (0, NO_STEP)),
        (STEP.replace("optimizer.step()", "make().step()"), (6,), (0, NO_STEP)),
    ],
)
def test_what_forbids_it_is_said(text: str, lines: tuple[int, ...], left: tuple[int, str]) -> None:
    edited = moved(text, *lines)
    assert (edited.text, edited.lines, edited.frees_gradients) == (text, (), False)
    ((line, why),) = edited.left
    assert (line, why[: len(left[1])]) == left


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def backward(model: nn.Module) -> None:
    model(torch.rand(4, 64)).square().mean().backward()


def plain(foreach: bool = False, optimizers: int = 1) -> nn.Module:
    model = net()
    optimizer = torch.optim.SGD([model[0].weight, model[0].bias], 0.1, foreach=foreach)
    other = torch.optim.SGD(model[2].parameters(), 0.1, foreach=foreach)
    if optimizers == 1:
        optimizer.add_param_group(other.param_groups[0])
    for _ in range(2):
        optimizer.zero_grad()
        other.zero_grad()
        backward(model)
        optimizer.step()
        if optimizers == 2:
            other.step()
    return model


def changed(change: Callable[[nn.Module], object], passes: int = 1) -> nn.Module:
    """Two steps of SGD with a `change` of the gradients of `passes` between backward pass and update."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(passes):
            backward(model)
        change(model)
        optimizer.step()
    return model


def scaled() -> nn.Module:
    model, scaler = net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(model(torch.rand(4, 64)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    return model


def searched() -> nn.Module:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 64)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return model


def clip(model: nn.Module, foreach: bool) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=foreach)


@pytest.mark.parametrize(
    ("train", "stage", "offered"),
    [
        (plain, True, 1),
        # Each parameter is updated by itself, but two optimizers have them.
        (lambda: plain(optimizers=2), True, 0),
        (lambda: plain(foreach=True), True, 1),
        (lambda: changed(lambda model: clip(model, foreach=False)), False, 0),
        (lambda: changed(lambda model: clip(model, foreach=True)), False, 0),
        # A hook that runs step() alone would leave it out.
        (lambda: changed(lambda model: [each.grad.clamp_(-1, 1) for each in model.parameters()]), True, 0),
        (lambda: changed(lambda model: None, passes=2), False, 0),
        (scaled, False, 0),
        (searched, False, 0),
    ],
    ids=["plain", "two", "foreach", "norm", "norms", "value", "accumulated", "scaler", "lbfgs"],
)
def test_hooks_are_offered_where_each_gradient_has_an_update_of_its_own(train, stage, offered) -> None:
    graph = observation_graph(observe_fake(train))
    situation = Situation(graph, Preparation(), (), make_plan(prepare(graph, Preparation()), "naive"))
    assert (StageName.GRADIENTS in stages_for(graph)) is stage
    assert len(list(propose_early_updates(situation))) == offered
