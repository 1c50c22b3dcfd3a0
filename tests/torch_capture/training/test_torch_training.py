"""Training steps as graphs: by hand, of real models, and what cannot be captured."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from memplan_engine.analysis.training_phases import saved_activations
from memplan_engine.cli.main import main
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Phase, Role
from memplan_engine.lifetimes import to_problem
from memplan_engine.torch_capture.torch_factory import capture_training_factory
from memplan_engine.torch_capture.training.torch_joint import Halves, joint_graph, match_forward_backward
from memplan_engine.torch_capture.training.torch_step import Gradients, capture_step
from memplan_engine.torch_capture.training.torch_training import capture_training
from tests.support.training_models import build, by_name, live_bytes


class Perceptron(nn.Module):
    """Two linear layers with a sigmoid between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).sigmoid())


def graph_returns(graph: Graph, op: Op) -> bool:
    return bool(set(op.outputs) & set(graph.outputs))


def test_a_whole_step_of_a_small_model_op_by_op() -> None:
    graph = capture_step(Perceptron(), (torch.ones(5, 4),), gradients="freed")
    assert [f"{op.phase}: {op.name}" for op in graph.ops] == [
        *(f"forward: {name}" for name in ("t", "addmm", "sigmoid", "detach", "t_1", "mm", "sum_1")),
        *(
            f"backward: {name}"
            for name in ("ones_like", "expand", "t_2", "mm_1", "t_3", "t_4", "mm_2", "t_5")
        ),
        *(f"backward: {name}" for name in ("detach_1", "detach_2", "sigmoid_backward", "t_6", "mm_3")),
        *(f"backward: {name}" for name in ("t_7", "sum_2", "view", "detach_3", "t_8", "detach_4")),
        *(f"optimizer: {name}" for name in ("add_", "add__1", "add__2")),
    ]
    weights = ("p_first_weight", "p_first_bias", "p_second_weight")
    assert (graph.inputs, graph.outputs, graph.constants) == (("x",), ("sum_1",), weights)
    # The sigmoid (60 bytes) stays for its own gradient; those of the weights (48, 12, 24) for the optimizer.
    assert live_bytes(to_problem(graph, alignment=1)) == [
        0, 60, 120, 60, 60, 100, 104,
        68, 68, 68, 92, 92, 92, 152, 148, 148, 148, 208, 88, 136, 136, 148, 88, 88, 88, 88,
        88, 40, 28,
    ]  # fmt: skip


def test_gradients_that_are_held_are_outputs_and_live_to_the_last_step() -> None:
    held, freed = (
        capture_step(Perceptron(), (torch.ones(5, 4),), optimizer="adam", gradients=kind)
        for kind in Gradients
    )
    assert freed.outputs == ("sum_1",)
    home = {tensor.name: tensor.storage for tensor in held.tensors}
    kept = [next(s for s in held.storages if s.name == home[name]) for name in held.outputs]
    assert [(storage.role, storage.nbytes) for storage in kept] == [
        (Role.OUTPUT, 4), (Role.OUTPUT, 48), (Role.OUTPUT, 12), (Role.OUTPUT, 24),
    ]  # fmt: skip
    # Each made at once into `.grad`, by an op of the parameter's module.
    ops = by_name(held)
    assert [(ops[name].kind, ops[name].module, ops[name].phase) for name in held.outputs[1:]] == [
        ("aten.detach", "first", "backward"),
        ("aten.detach", "first", "backward"),
        ("aten.detach", "second", "backward"),
    ]
    # In the optimizer: loss and gradients are 88 bytes to the end, and two temporaries of each parameter.
    after = [
        live_bytes(to_problem(graph, alignment=1))[-sum(op.phase is Phase.OPTIMIZER for op in graph.ops) :]
        for graph in (held, freed)
    ]
    assert after[0] == [
        88, 88, 88, 88, 136, 184, 136, 136,
        88, 88, 88, 88, 100, 112, 100, 100,
        88, 88, 88, 88, 112, 136, 112, 112,
    ]  # fmt: skip
    assert after[1] == [
        88, 88, 88, 88, 88, 136, 88, 88,
        40, 40, 40, 40, 40, 52, 40, 40,
        28, 28, 28, 28, 28, 52, 28, 28,
    ]  # fmt: skip


class Shared(nn.Module):
    """Two parameters with one gradient between them, and one whose gradient is a single number, expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.ones(10, 10)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((self.a + self.b) * x).sum() + self.c.sum()


@pytest.mark.parametrize("functional", [False, True], ids=["in place", "functional"])
def test_what_cannot_be_a_grad_as_it_is_gets_copied_as_autograd_does(functional: bool) -> None:
    model, x = Shared(), torch.rand(10, 10)
    graph = capture_step(model, (x,), functional=functional)
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    assert len({home[name] for name in graph.outputs}) == 4
    model(x).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert len({gradient.untyped_storage().data_ptr() for gradient in gradients}) == 3
    sizes = {storage.name: storage.nbytes for storage in graph.storages}
    assert [sizes[home[name]] for name in graph.outputs] == [
        4,
        *(g.untyped_storage().nbytes() for g in gradients),
    ]
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_ops_know_their_module_and_line_also_in_the_backward_pass() -> None:
    graph = capture_step(Perceptron(), (torch.ones(5, 4),))
    ops = by_name(graph)
    assert [ops[name].module for name in ("addmm", "mm", "mm_1", "mm_3")] == [
        "first",
        "second",
        "second",
        "first",
    ]
    assert [ops[f"add_{n}"].module for n in ("", "_1", "_2")] == ["first", "first", "second"]
    lines = {str(ops[name].source) for name in ("addmm", "sigmoid", "mm", "mm_1", "sigmoid_backward", "mm_3")}
    (line,) = lines
    assert line.startswith("tests/torch_capture/training/test_torch_training.py:")
    assert ops["mm_3"].source.code == "return self.second(self.first(x).sigmoid())"
    assert str(ops["add_"].source).startswith("torch/optim/sgd.py:")


def test_ops_of_a_huggingface_model_know_their_module_and_line() -> None:
    model, inputs, _ = build("bert")
    graph = capture_step(model, (), inputs, optimizer="sgd")
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        ops = [op for op in graph.ops if op.phase is phase and not graph_returns(graph, op)]
        known = [op for op in ops if op.module and str(op.source).startswith("transformers/models/bert/")]
        assert len(known) > 0.9 * len(ops)
    modules = {op.module for op in graph.ops if op.kind == "aten.native_layer_norm_backward"}
    assert {"bert.embeddings.LayerNorm", "bert.encoder.layer.0.output.LayerNorm"} < modules


def test_parameters_and_state_are_constants_written_in_place() -> None:
    graph = capture_step(Perceptron(), (torch.ones(5, 4),), optimizer="adam")
    weights = ("p_first_weight", "p_first_bias", "p_second_weight")
    state = tuple(f"{name}.{kind}" for name in weights for kind in ("step", "exp_avg", "exp_avg_sq"))
    assert graph.constants == weights + state
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    written = Counter(home[name] for op in graph.ops if op.phase is Phase.OPTIMIZER for name in op.mutates)
    assert {name: written[name] for name in graph.constants} == {
        **dict.fromkeys(weights, 1),
        **{name: 2 if name.endswith("sq") else 1 for name in state},
    }
    assert sum(op.phase is Phase.OPTIMIZER for op in graph.ops) == 8 * len(weights)


def test_a_functional_step_copies_the_new_values_back_at_the_end() -> None:
    graph = capture_step(Perceptron(), (torch.ones(5, 4),), functional=True)
    assert [(op.name, op.mutates) for op in graph.ops if op.mutates] == [
        ("copy_", ("p_first_weight",)),
        ("copy__1", ("p_first_bias",)),
        ("copy__2", ("p_second_weight",)),
    ]
    updates = [(op.name, op.module) for op in graph.ops if op.phase is Phase.OPTIMIZER]
    assert updates == [
        ("add", "first"), ("add_1", "first"), ("add_2", "second"),
        ("copy_", "first"), ("copy__1", "first"), ("copy__2", "second"),
    ]  # fmt: skip


class Tied(nn.Module):
    """A language model without layers: tokens, positions, and a head with the weight of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(10, 4), nn.Embedding(6, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.tokens(ids) + self.positions(torch.arange(6))).logsumexp(-1).sum()


def test_frozen_parameters_have_no_gradient_and_tied_ones_a_single_one() -> None:
    model = Tied()
    model.positions.weight.requires_grad_(False)
    graph = capture_step(
        model,
        (torch.arange(6).view(1, 6),),
        optimizer=lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    )
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert sum(name.endswith(".momentum_buffer") for name in graph.constants) == len(trained)
    updates = [op.module for op in graph.ops if op.phase is Phase.OPTIMIZER and op.kind == "aten.mul_"]
    assert len(updates) == len(trained)
    assert updates.count("tokens") == 1
    assert "positions" not in updates


def test_a_parameter_without_a_part_in_the_loss_is_not_updated() -> None:
    model = Perceptron()
    model.spare = nn.Linear(2, 2)
    graph = capture_step(model, (torch.ones(5, 4),), optimizer="adam")
    assert "spare" not in {op.module for op in graph.ops}
    joint = capture_training(model, (torch.ones(5, 4),)).joint
    assert len(joint.outputs) == 2 + 3


def test_forward_backward_and_joint_of_a_small_model() -> None:
    capture = capture_training(Perceptron(), (torch.ones(5, 4),))
    assert capture.forward.outputs == ("sum_1", "detach_1", "x", "sigmoid", "detach", "t_1")
    assert capture.outputs == 2
    assert capture.backward.inputs == ("x", "sigmoid", "detach", "tangents_1")
    assert capture.backward.constants == ("t_1",)
    assert capture.backward.outputs == ("t_8", "view", "t_5")
    joint = capture.joint
    ops = by_name(joint)
    forward, backward = ([op.name for op in graph.ops] for graph in (capture.forward, capture.backward))
    assert list(ops) == [*forward, "tangents_1", *backward]
    assert [op.phase for op in joint.ops] == [Phase.FORWARD] * 8 + [Phase.BACKWARD] * 16
    assert (joint.inputs, joint.outputs) == (("x",), ("sum_1", "detach_1", "t_8", "view", "t_5"))
    assert ops["tangents_1"] == Op(
        "tangents_1", "aten.ones_like", ("sum_1",), ("tangents_1",), phase=Phase.BACKWARD
    )
    assert ops["sigmoid_backward"].inputs == ("mm_2", "detach_2")
    assert saved_activations(joint) == ("sigmoid", "sum_1")
    assert {op.phase for op in capture.forward.ops} == {Phase.FORWARD}
    assert {op.phase for op in capture.backward.ops} == {Phase.BACKWARD}
    # Two storages of the backward graph: the sigmoid and its detached view are one.
    sizes = {storage.name: storage.nbytes for storage in capture.backward.storages}
    assert {name: sizes[name] for name in sizes if name in ("x", "sigmoid", "detach", "t_1")} == {
        "x": 80, "sigmoid": 60, "t_1": 24,
    }  # fmt: skip


def test_no_weight_is_allocated_and_the_model_is_left_alone() -> None:
    """160 GB of weights, as much of gradients, and twice that of state."""
    with torch.device("meta"):
        model = nn.Linear(200_000, 200_000, bias=False)
        batch = torch.ones(1, 200_000)
    graph = capture_step(model, (batch,), optimizer="adam")
    sizes = {storage.name: (storage.role, storage.nbytes) for storage in graph.storages}
    assert sizes["p_weight.exp_avg"] == (Role.CONSTANT, 160_000_000_000)
    assert model.weight.is_meta
    assert model.weight.grad is None
    assert model.training


def test_unknown_names_and_models_are_named() -> None:
    inputs = (torch.ones(5, 4),)
    with pytest.raises(
        InputError, match=r"^Perceptron: optimizer: found 'lion', expected one of sgd, adam, adamw$"
    ):
        capture_step(Perceptron(), inputs, optimizer="lion")
    with pytest.raises(
        InputError, match=r"^Perceptron: gradients: found 'kept', expected one of held, freed$"
    ):
        capture_step(Perceptron(), inputs, gradients="kept")
    with pytest.raises(
        InputError, match=r"^Perceptron: partition: found 'max', expected one of default, min_cut$"
    ):
        capture_training(Perceptron(), inputs, partition="max")
    with pytest.raises(
        InputError, match=r"^function: model: found a function, expected a torch\.nn\.Module$"
    ):
        capture_step(graph_returns, inputs)
    with pytest.raises(
        InputError, match=r"^Perceptron: torch\.export: found RuntimeError: .*, expected a model"
    ):
        capture_training(Perceptron(), (torch.ones(5, 5),))


def test_a_backward_graph_that_does_not_match_its_forward_is_an_error() -> None:
    capture = capture_training(Perceptron(), (torch.ones(5, 4),))
    other = capture_training(Perceptron(), (torch.ones(6, 4),))
    matched = match_forward_backward(capture.forward_module, capture.backward_module, "net")
    assert matched == {"primals_4": 2, "sigmoid": 3, "detach": 4, "t_1": 5}
    with pytest.raises(InputError) as caught:
        match_forward_backward(capture.forward_module, other.backward_module, "net")
    assert str(caught.value) == (
        "net: backward placeholder 'primals_4': found float32[6, 4], expected float32[5, 4], as the forward "
        "graph saves it"
    )
    placeholder = capture.backward_module.graph.find_nodes(op="placeholder")[1]
    placeholder._rename("relu")
    with pytest.raises(InputError) as caught:
        joint_graph(Halves("net", capture.forward_module, capture.backward_module, capture.outputs))
    assert str(caught.value) == (
        "net: backward placeholder 'relu': found no forward output of that name, expected one that the "
        "forward graph saves"
    )


def test_halves_of_ones_own_need_no_descriptions() -> None:
    capture = capture_training(Perceptron(), (torch.ones(5, 4),), name="net")
    halves = Halves("net", capture.forward_module, capture.backward_module, capture.outputs, capture.loss)
    graph = joint_graph(halves)
    assert graph.inputs == ("primals_1", "primals_2", "primals_3", "primals_4")
    assert [op.name for op in graph.ops] == [op.name for op in capture.joint.ops]
    assert live_bytes(to_problem(graph)) == live_bytes(to_problem(capture.joint))


def test_a_factory_for_training(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trained_here.py").write_text(
        "import torch\n\ndef net():\n    return torch.nn.Linear(4, 2), (torch.ones(3, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    step = capture_training_factory("trained_here:net", optimizer="adam")
    assert step.name == "net"
    assert sum(op.phase is Phase.OPTIMIZER for op in step.ops) == 16
    assert len(step.outputs) == 3
    freed = capture_training_factory("trained_here:net", optimizer="adam", gradients="freed")
    assert freed.outputs == step.outputs[:1]
    joint = capture_training_factory("trained_here:net", "joint", partition="min_cut")
    assert {op.phase for op in joint.ops} == {Phase.FORWARD, Phase.BACKWARD}
    with pytest.raises(InputError, match=r"^factory trained_here:net: training: found 'epoch', expected one"):
        capture_training_factory("trained_here:net", "epoch")
    with pytest.raises(InputError, match=r"^factory trained_here:net: optimizer: found 'lion', expected one"):
        capture_training_factory("trained_here:net", optimizer="lion")
    with pytest.raises(InputError, match=r"^factory trained_here:net: gradients: found 'no', expected one"):
        capture_training_factory("trained_here:net", gradients="no")


def exit_code(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "argv", ["memplan", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_the_command_line_holds_gradients_unless_told(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trained_by_cli.py").write_text(
        "import torch\n\ndef net():\n    return torch.nn.Linear(4, 2), (torch.ones(3, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    outputs = []
    for options in ("", "--gradients held", "--gradients freed"):
        words = f"capture trained_by_cli:net --training step {options} -o step.json".split()
        assert exit_code(words, monkeypatch) == 0
        outputs.append(len(json.loads((tmp_path / "step.json").read_text())["outputs"]))
    assert outputs == [3, 3, 1]
    capsys.readouterr()
    for options, found in (("", "no --training"), ("--training joint", "--training joint")):
        words = f"capture trained_by_cli:net {options} --gradients held -o other.json".split()
        assert exit_code(words, monkeypatch) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"--gradients: found {found}, expected --training step" in error
    assert not (tmp_path / "other.json").exists()


def test_captures_are_the_same_each_time() -> None:
    model, inputs, loss = build("conv")
    first, second = (capture_training(model, (), inputs, loss=loss, partition="min_cut") for _ in range(2))
    assert dataclasses.asdict(first.joint) == dataclasses.asdict(second.joint)
    steps = [capture_step(Perceptron(), (torch.ones(5, 4),)) for _ in range(2)]
    assert steps[0] == steps[1]
