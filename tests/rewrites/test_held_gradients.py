"""What holds the gradients of a training step, by hand and on steps that torch takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from memplan_engine import capture_step, observation_graph, observe_fake
from memplan_engine.advice.fit_stages import LOWERING, StageName, stages_for
from memplan_engine.analysis.training_phases import saved_storages
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Phase, Role, Source, Storage, Tensor
from memplan_engine.rewrites.held_gradients import HeldBy, free_gradients, gradients, held_gradients

BYTES = {"v": 4, "w": 4, "x": 4, "loss": 4, "dv": 8, "dw": 16, "both": 4}
TRAIN = Source("train.py", 9, "clip(model)")


def step(*optimizer: Op, outputs: tuple[str, ...] = ("loss", "dv", "dw"), held: str = "") -> Graph:
    """A forward op, one that makes each of two gradients, and the ops of an optimizer."""
    roles = {"v": Role.CONSTANT, "w": Role.CONSTANT, "x": Role.INPUT}
    ops = (
        Op("forward", "f", ("x", "v", "w"), ("loss",), phase=Phase.FORWARD),
        Op("back_v", "b", ("loss", "v"), ("dv",), phase=Phase.BACKWARD),
        Op("back_w", "b", ("loss", "w"), ("dw",), phase=Phase.BACKWARD),
        *optimizer,
    )
    made = {*BYTES} & {"v", "w", "x", *(name for op in ops for name in op.outputs)}
    own = {name: Role.OUTPUT if name in outputs else Role.ACTIVATION for name in made} | roles
    storages = [Storage(n, BYTES[n], own[n], held_by=held * (n[0] == "d")) for n in BYTES if n in made]
    tensors = [Tensor(n, (BYTES[n] // 4,), "float32", BYTES[n], n) for n in BYTES if n in made]
    return Graph("hand", tuple(storages), tuple(tensors), ops, ("x",), outputs, ("v", "w"))


def update(name: str, *more: str) -> Op:
    return Op(f"update_{name}", "u", (name, f"d{name}", *more), (), (name,), phase=Phase.OPTIMIZER)


def clip() -> Op:
    return Op("clip", "stack", ("dv", "dw"), ("both",), source=TRAIN, phase=Phase.OPTIMIZER)


def told(graph: Graph) -> list[tuple[HeldBy, tuple[str, ...], int, str]]:
    return [(g.why, g.tensors, g.nbytes, g.op.name if g.op else "") for g in held_gradients(graph)]


def test_updates_of_their_own_hold_nothing() -> None:
    graph = step(update("v"), update("w"))
    assert told(graph) == [(HeldBy.ORDER, ("dv", "dw"), 24, "")]
    assert held_gradients(graph)[0].free


def test_an_op_that_reads_both_holds_both_and_is_named_with_its_line() -> None:
    graph = step(clip(), update("v", "both"), update("w", "both"))
    (group,) = held_gradients(graph)
    assert told(graph) == [(HeldBy.TOGETHER, ("dv", "dw"), 24, "clip")]
    assert (group.op.source, group.free) == (TRAIN, False)
    # The update of w does not wait for the clipping, which reads the gradient of w all the same.
    graph = step(clip(), update("v", "both"), update("w"))
    assert told(graph) == [(HeldBy.TOGETHER, ("dv", "dw"), 24, "clip")]


def test_gradients_that_wait_for_each_other_are_not_freed_early() -> None:
    graph = step(clip(), update("v", "both"), update("w", "both"))
    assert gradients(graph) == ()
    with pytest.raises(InputError) as refused:
        free_gradients(graph)
    assert str(refused.value) == (
        "hand: gradients: found one op needs all of them: stack at train.py:9, "
        "expected updates that need one gradient each, not clipped together"
    )
    # Read by the norm of both, but not updated with it: the gradients have to wait all the same.
    assert gradients(step(clip(), update("v"), update("w"))) == ()
    # The update of w alone waits for both.
    alone = Op("alone", "norm", ("dv",), ("both",), phase=Phase.OPTIMIZER)
    assert free_gradients(step(alone, update("w", "both"), update("v"))).outputs == ("loss", "dw")


def test_a_gradient_that_waits_for_no_other_goes_while_the_others_are_held() -> None:
    alone = Op("alone", "norm", ("dv",), ("both",), phase=Phase.OPTIMIZER)
    graph = step(update("w"), alone, update("v", "both"))
    assert told(graph) == [(HeldBy.ORDER, ("dv", "dw"), 24, "")]
    # The update of w reads the norm of v: w waits for both, v for itself.
    graph = step(alone, update("w", "both"), update("v"))
    assert told(graph) == [(HeldBy.ORDER, ("dv",), 8, ""), (HeldBy.TOGETHER, ("dw",), 16, "update_w")]


def test_what_is_read_besides_is_told_and_holds_nothing() -> None:
    logged = Op("logged", "norm", ("dv",), ("both",), source=TRAIN, phase=Phase.OPTIMIZER)
    (group,) = held_gradients(step(update("v"), update("w"), logged))
    assert (group.why, group.readers) == (HeldBy.ORDER, (logged,))


def test_what_the_step_returns_besides_holding_it_is_never_freed() -> None:
    graph = step(update("v"), update("w"), outputs=("loss", "dv", "dv", "dw"))
    assert told(graph) == [(HeldBy.ORDER, ("dw",), 16, ""), (HeldBy.RETURNED, ("dv",), 8, "")]
    assert gradients(graph) == ("dw",)
    assert free_gradients(graph).outputs == ("loss", "dv", "dv")


def test_what_python_holds_in_a_recorded_run_counts_as_held() -> None:
    last = replace(update("w"), name="last")
    graph = step(update("v"), last, outputs=(), held="last")
    assert gradients(graph) == ("dv",)
    assert {s.name: s.held_by for s in free_gradients(graph).storages if s.name[0] == "d"} == {
        "dv": "",
        "dw": "last",
    }
    assert gradients(step(update("v"), update("w"), outputs=())) == ()


def test_no_training_step_has_none() -> None:
    graph = step()
    assert held_gradients(replace(graph, outputs=("loss",))) == ()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


def take(model, optimizer, x, more=lambda model: None, after=lambda model: ()):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    more(model)
    optimizer.step()
    return loss, *after(model)


NAMES = ("first.weight", "first.bias", "second.weight", "second.bias")
WEIGHTS = 4 * (8 * 8 + 8 + 8 * 4 + 4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(HeldBy.ORDER, 4, WEIGHTS)]),
        ({"foreach": True}, [(HeldBy.TOGETHER, 4, WEIGHTS)]),
        ({"clip_grad_norm": 1.0}, [(HeldBy.TOGETHER, 4, WEIGHTS)]),
        ({"accumulate": 2}, [(HeldBy.ACCUMULATED, 4, WEIGHTS)]),
    ],
)
def test_the_steps_of_torch(options, expected) -> None:
    def loss(y: torch.Tensor) -> torch.Tensor:
        return y.square().mean()

    graph = capture_step(Net(), (torch.rand(2, 8),), optimizer="adam", loss=loss, **options)
    assert [(g.why, len(g.tensors), g.nbytes) for g in held_gradients(graph)] == expected


def test_the_line_of_a_step_of_ones_own_is_named() -> None:
    def clipped(model, optimizer, x):
        return take(model, optimizer, x, lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0))

    (group,) = held_gradients(capture_step(Net(), (torch.rand(2, 8),), step=clipped))
    assert group.why is HeldBy.TOGETHER
    assert "clip_grad_norm_(model.parameters(), 1.0)" in group.op.source.code


def test_a_gradient_that_a_step_of_ones_own_returns_stays() -> None:
    def returning(model, optimizer, x):
        return take(model, optimizer, x, after=lambda model: (model.first.weight.grad,))

    graph = capture_step(Net(), (torch.rand(2, 8),), step=returning)
    assert [(g.why, g.nbytes) for g in held_gradients(graph)] == [
        (HeldBy.ORDER, WEIGHTS - 256),
        (HeldBy.RETURNED, 256),
    ]
    assert len(free_gradients(graph).outputs) == 3


def trained(hooked: tuple[str, ...] = ()) -> Graph:
    """Three steps of SGD on `Net`, recorded as one run; parameters of `hooked` are updated in hooks."""

    def train() -> nn.Module:
        model = Net()
        each = {name: torch.optim.SGD([weight], 0.1) for name, weight in model.named_parameters()}

        def update(name: str) -> None:
            each[name].step()
            each[name].zero_grad()

        for name, weight in model.named_parameters():
            if name in hooked:
                weight.register_post_accumulate_grad_hook(lambda _, name=name: update(name))
        for _ in range(3):
            model(torch.rand(2, 8)).square().mean().backward()
            for name in NAMES:
                if name not in hooked:
                    each[name].step()
            model.zero_grad()
        return model

    return observation_graph(observe_fake(train))


def test_of_a_run_of_several_steps_only_what_is_there_at_once_is_summed_up() -> None:
    graph = trained()
    assert [(g.why, len(g.tensors), g.nbytes) for g in held_gradients(graph)] == [(HeldBy.ORDER, 4, WEIGHTS)]
    # Of each step its input and what relu gives, 2 × 8 floats each, the result, 2 × 4, and the loss.
    saved = sorted(each.nbytes for each in saved_storages(graph))
    assert saved == [4, 32, 64, 64]


def test_an_optimizer_in_the_backward_pass_holds_no_gradients() -> None:
    graph = trained(NAMES)
    assert held_gradients(graph) == ()
    assert gradients(graph) == ()
    assert StageName.GRADIENTS not in stages_for(graph, LOWERING)
    with pytest.raises(InputError, match="in the backward pass already"):
        free_gradients(graph)


def test_hooks_of_one_layer_leave_the_gradients_of_the_others_held() -> None:
    graph = trained(NAMES[:2])
    assert StageName.GRADIENTS in stages_for(graph, LOWERING)
    assert gradients(graph)
