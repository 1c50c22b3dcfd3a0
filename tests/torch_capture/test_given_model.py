"""Whatever is handed over as a model gives the graph that its own capture gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from memplan_engine import capture, capture_step, observe_fake, three_answers
from memplan_engine.checks.eager_reserved import eager_reserved
from memplan_engine.errors import InputError
from memplan_engine.graph import Phase
from memplan_engine.history.measuring import structure_of
from memplan_engine.torch_capture.given_model import GivenModel
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from tests.support.chains import chain

INPUTS = (torch.zeros(4, 8),)


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).eval()


def factory(rows: int = 4) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    return net(), (torch.zeros(rows, 8),)


def test_modules_factories_programs_and_graphs_give_one_graph() -> None:
    expected = capture(net(), INPUTS, name="net")
    traced = torch.fx.symbolic_trace(net())
    assert GivenModel(net(), INPUTS, options={"name": "net"}).graph() == expected
    for given in (GivenModel(factory), GivenModel(f"{__file__}:factory")):
        assert given.graph().ops == expected.ops
        assert given.graph().name == "factory"
    kinds = [(op.kind, op.outputs) for op in expected.ops]
    for given in (GivenModel(traced, INPUTS), GivenModel(torch.export.export(net(), INPUTS))):
        assert [(op.kind, op.outputs) for op in given.graph().ops] == kinds
        assert given.graph().storages == expected.storages
    graph = chain(8, 8)
    assert GivenModel(graph).graph() is graph


def test_a_training_step_is_that_of_its_own_capture() -> None:
    options = {"optimizer": "adam", "loss": torch.sum}
    expected = capture_step(net(), INPUTS, **options)
    # The lines of the backward pass are those of whoever asked for it.
    given = GivenModel(net(), INPUTS, training=True, options=options).graph()
    assert structure_of(given) == structure_of(expected)
    backward = {Path(op.source.file).name for op in given.ops if op.phase is Phase.BACKWARD and op.source}
    assert backward == {Path(__file__).name}
    assert len(GivenModel(factory, training=True, options=options).graph().ops) == len(expected.ops)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (GivenModel(7), "int: model: found a int, expected a torch.nn.Module with its inputs"),
        (GivenModel(torch.nn.Linear), "type: model: found a type, expected a torch.nn.Module"),
        (GivenModel(factory, INPUTS), "inputs: found some, expected none: only a module is called"),
        (GivenModel(chain(8), training=True), "Graph: options: found training, expected none"),
        (
            GivenModel("nosuch:net"),
            "factory nosuch:net: module nosuch: found ModuleNotFoundError",
        ),
    ],
)
def test_what_is_no_model_is_told(given: GivenModel, told: str) -> None:
    with pytest.raises(InputError) as error:
        given.graph()
    assert told in str(error.value)


def test_what_an_eager_run_reserves_is_what_the_allocator_is_predicted_to_hold() -> None:
    # Each tensor is below 1 MiB: PyTorch's allocator takes a segment of 2 MiB for all of them.
    assert eager_reserved(GivenModel(net(), INPUTS)) == eager_reserved(GivenModel(factory)) == 2**21
    seen = observe_fake(net(), INPUTS, recipe=Recipe("adam", torch.sum))
    given = GivenModel(net(), INPUTS, training=True, options={"optimizer": "adam", "loss": torch.sum})
    assert eager_reserved(given) == three_answers(seen).reserved[1]
    with pytest.raises(InputError, match="a module or a factory"):
        eager_reserved(GivenModel(torch.export.export(net(), INPUTS)))
