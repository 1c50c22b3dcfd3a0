"""The loss of a training step: where it is found, and what cannot be differentiated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.training.torch_step import capture_step
from memplan_engine.torch_capture.training.torch_training import capture_training
from tests.support.training_models import by_name


class Outputs(nn.Module):
    """A layer whose output is wrapped by `form`."""

    def __init__(self, form: Any, grad: bool = True) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.form = form
        self.requires_grad_(grad)

    def forward(self, x: torch.Tensor) -> Any:
        return self.form(self.fc(x))


@pytest.mark.parametrize(
    ("model", "loss", "message"),
    [
        (
            Outputs(lambda y: (y, y + 1)),
            None,
            "Outputs: output: found a tuple output without a loss, expected output.loss (give labels), one "
            "tensor, or loss=, a function",
        ),
        (
            Outputs(lambda y: {"loss": y}),
            None,
            "Outputs: output: found a loss of shape (5, 2), expected a scalar: loss=, a function",
        ),
        (
            Outputs(lambda y: y),
            lambda y: y * 2,
            "Outputs: loss: found a loss of shape (5, 2), expected a scalar: loss=, a function",
        ),
        (
            Outputs(lambda y: y),
            lambda y: 3,
            "Outputs: loss: found an int result, expected output.loss (give labels), one tensor, or loss=, a "
            "function",
        ),
        (
            Outputs(lambda y: y.detach()),
            None,
            "Outputs: output: found a loss that no parameter has a part in, expected one that can be "
            "differentiated; of torch.cond and other operators that take functions only a predicted run "
            "takes gradients (memplan observe --fake SCRIPT)",
        ),
        (
            Outputs(lambda y: y, grad=False),
            None,
            "Outputs: parameters: found 2, none of which requires a gradient, expected at least one that "
            "does",
        ),
    ],
    ids=["no loss", "own loss no scalar", "loss no scalar", "loss no tensor", "detached", "frozen"],
)
@pytest.mark.parametrize("how", [capture_step, capture_training])
def test_what_cannot_be_differentiated_is_named(how: Any, model: nn.Module, loss: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        how(model, (torch.ones(5, 3),), loss=loss)
    assert str(caught.value) == message


def test_losses_of_all_kinds_are_found() -> None:
    inputs = (torch.ones(5, 3),)
    lone = capture_step(Outputs(lambda y: y), inputs)
    scalar = capture_step(Outputs(lambda y: y.mean()), inputs)
    mapping = capture_step(Outputs(lambda y: {"y": y, "loss": y.mean()}), inputs)
    given = capture_step(Outputs(lambda y: (y, 2)), inputs, loss=lambda output: output[0].mean())
    assert [graph.outputs[0] for graph in (lone, scalar, mapping, given)] == ["sum_1", *["mean"] * 3]


def test_the_loss_is_found_among_other_scalars_new_buffers_and_views() -> None:
    batch = (torch.ones(5, 3),)
    scalars = capture_training(Outputs(lambda y: {"aux": y.sum(), "loss": y.mean()}), batch)
    assert scalars.joint.outputs[:2] == ("mean", "detach")
    viewed = capture_training(Outputs(lambda y: y.mean().view(())), batch)
    normed = capture_training(nn.BatchNorm1d(3), batch)
    assert normed.joint.outputs[normed.loss] == "sum_1"
    assert normed.loss == 3  # after the new mean, variance and count
    for capture, loss in ((scalars, "mean"), (viewed, "clone"), (normed, "sum_1")):
        assert by_name(capture.joint)["tangents_1"].inputs == (loss,)
        assert len(capture.backward.outputs) == 2
