"""The optimizer in the backward pass, against captures of such steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import InputError, Preparation, capture_step, make_plan, prepare, to_problem
from memplan_engine.advice.advise import advise
from memplan_engine.graph import Graph, Op, Phase
from memplan_engine.profile import load_of
from memplan_engine.rewrites.early_updates import early_updates
from memplan_engine.rewrites.held_gradients import free_gradients, gradients
from memplan_engine.rewrites.reuse import check_plan_execution
from memplan_engine.schedule import sequential
from tests.support.graphs import make_graph

EARLY = Preparation(early_updates=True)


def by_hand() -> Graph:
    """Two weights of 8 bytes with gradients of 8: both are live when the first update runs."""
    forward, backward, optimizer = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER
    ops = (
        Op("net", "net", ("x", "w", "v"), ("loss",), phase=forward),
        Op("back_v", "mm", ("loss", "v"), ("dv",), phase=backward),
        Op("back_w", "mm", ("dv", "w", "v"), ("dw",), phase=backward),
        Op("count", "add", ("w",), ("rate",), phase=optimizer),
        Op("step_v", "sgd", ("v", "dv", "rate"), (), ("v",), phase=optimizer),
        Op("step_w", "sgd", ("w", "dw", "rate"), (), ("w",), phase=optimizer),
    )
    sizes = {"x": 4, "w": 8, "v": 8, "loss": 4, "dv": 8, "dw": 8, "rate": 1}
    return make_graph(ops, sizes, inputs=("x",), constants=("w", "v"), outputs=("loss", "dv", "dw"))


def network(**options: Any) -> Graph:
    with torch.device("meta"):
        model, batch = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))), torch.zeros(4, 64)
    return capture_step(model, (batch,), **options)


def in_backward(model: nn.Module, optimizers: list[torch.optim.Optimizer], x: torch.Tensor) -> torch.Tensor:
    """A step as PyTorch's tutorial on optimizers in the backward pass takes it."""
    optimizer_of = {each.param_groups[0]["params"][0]: each for each in optimizers}

    def update(parameter: torch.Tensor) -> None:
        optimizer_of[parameter].step()
        optimizer_of[parameter].zero_grad()

    hooks = [each.register_post_accumulate_grad_hook(update) for each in optimizer_of]
    loss = model(x).sum()
    loss.backward()
    for hook in hooks:
        hook.remove()
    return loss


def one_each(make: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda parameters: [make([each]) for each in parameters]


def test_an_update_waits_for_its_gradient_and_for_readers_of_the_parameter() -> None:
    graph = free_gradients(by_hand())
    assert gradients(by_hand()) == ("dv", "dw")
    assert graph.outputs == ("loss",)
    # step_v overwrites v, which back_w reads; count waits for who needs it.
    assert early_updates(graph).step_of_op == (0, 1, 2, 3, 4, 5)
    assert prepare(by_hand(), EARLY).end.tolist() == [6, 5, 6, 6]


def test_freed_gradients_are_what_a_capture_without_them_has() -> None:
    held, freed = network(optimizer="adam"), network(optimizer="adam", gradients="freed")
    assert to_problem(free_gradients(held)) == to_problem(freed)


@pytest.mark.parametrize(
    ("optimizer", "make"), [("adam", torch.optim.Adam), ("sgd", lambda p: torch.optim.SGD(p, 1e-3))]
)
def test_the_peak_is_that_of_a_step_with_hooks(optimizer: str, make: Callable[..., Any]) -> None:
    hooked = network(optimizer=one_each(make), step=in_backward, gradients="freed")
    held = network(optimizer=optimizer)
    early = prepare(held, EARLY)
    assert load_of(early).peak == load_of(to_problem(hooked, sequential(hooked))).peak
    assert load_of(early).peak < load_of(to_problem(held)).peak / 2
    best = next(each for each in advise(held).suggestions if each.kinds == ("early_updates",))
    assert best.title == "Run the optimizer in the backward pass"
    assert best.arena_bytes == best.plan.bound.nbytes


@pytest.mark.parametrize("graph", [by_hand(), network(optimizer="adam")], ids=["by hand", "adam"])
@pytest.mark.parametrize("in_place", [False, True])
def test_each_op_finds_in_the_arena_what_it_found_before(graph: Graph, in_place: bool) -> None:
    plan = make_plan(prepare(graph, Preparation(early_updates=True, in_place=in_place)), "greedy_by_size")
    assert check_plan_execution(plan, free_gradients(graph)) == ()


def test_a_step_with_hooks_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    model, batch = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.rand(4, 8)
    hooked = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters())
    optimizers = one_each(torch.optim.Adam)(hooked.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        in_backward(hooked, optimizers, batch)
    assert all(map(torch.equal, model.parameters(), hooked.parameters()))


@pytest.mark.parametrize(
    ("graph", "how", "message"),
    [
        (
            make_graph([Op("a", "relu", ("x",), ("y",))], {"x": 1, "y": 1}, inputs=("x",), outputs=("y",)),
            EARLY,
            "net: gradients: found no training step: no op of an optimizer reads what a backward pass makes, "
            "expected a whole training step that returns its gradients, each with an update that needs no "
            "other",
        ),
        (
            by_hand(),
            Preparation(early_updates=True, streams=2),
            "net: early updates: found 2 streams, expected neither: they are a schedule themselves",
        ),
    ],
)
def test_what_has_no_early_updates_is_refused(graph: Graph, how: Preparation, message: str) -> None:
    with pytest.raises(InputError) as refused:
        prepare(graph, how)
    assert str(refused.value) == message
