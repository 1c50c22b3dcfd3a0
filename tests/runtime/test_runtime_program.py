"""Programs: captured once, called as forward is called, run by torch's interpreter."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from memplan_engine import (
    InputError,
    Program,
    StaticRuntime,
    capture,
    load_program,
    load_step,
    program_from_exported,
    program_from_module,
)
from tests.support.runtime import Blocks, Counts, same_bits

each_form = pytest.mark.parametrize("functional", [False, True])


@each_form
def test_a_run_gives_and_leaves_behind_what_forward_does(functional: bool) -> None:
    model = Counts()
    twin = copy.deepcopy(model)
    program = load_program(model, (torch.ones(3, 4),), {"scale": 2.0}, functional=functional)
    for run in (program.interpret, program.run):
        x, y = torch.rand(3, 4), torch.zeros(0)
        y = x.clone()
        found, expected = run((x,), {"scale": 2.0}), twin(y, scale=2.0)
        assert list(found) == list(expected)
        assert same_bits(found, expected)
        assert same_bits(x, y)
        assert same_bits(model.calls, twin.calls)
    assert model.calls == 2
    assert sum(name is not None for name in program.written) == (2 if functional else 0)


def test_the_graph_is_the_one_that_capture_gives_and_weights_are_the_models_own() -> None:
    model = Blocks()
    program = load_program(model, (torch.ones(4, 16),))
    graph = capture(model, (torch.ones(4, 16),))
    assert program.graph == graph
    assert [node.name for node in program.module.graph.nodes if node.op == "placeholder"] == list(
        program.placeholders
    )
    owned = [tensor.data_ptr() for tensor in model.parameters()]
    assert [tensor.data_ptr() for tensor in program.state] == owned
    with torch.no_grad():
        model.first.bias.add_(1)
    x = torch.rand(4, 16)
    assert same_bits(program.interpret((x,)), model(x))


def test_arguments_by_name_or_by_place_as_forward_takes_them() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    x, y = torch.rand(3), torch.rand(3)
    for args, kwargs in (((x, y), {}), ((x,), {"y": y}), ((), {"x": x, "y": y})):
        program = load_program(Two(), args, kwargs)
        for given, named in (((x, y), {}), ((x,), {"y": y}), ((), {"y": y, "x": x})):
            assert same_bits(program.run(given, named), x - y)


@pytest.fixture(scope="module")
def counting() -> Program:
    return load_program(Counts(), (torch.ones(3, 4),), {"scale": 2.0}, name="counts")


X = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (
            (X[:2],),
            {"scale": 2.0},
            "counts: input 'x': found shape (2, 4), expected shape (3, 4), as captured",
        ),
        ((X.double(),), {"scale": 2.0}, "input 'x': found dtype torch.float64"),
        ((X.to("meta"),), {"scale": 2.0}, "input 'x': found device meta, expected device cpu"),
        ((torch.ones(4, 3).t(),), {"scale": 2.0}, "input 'x': found strides (1, 3), expected strides (4, 1)"),
        ((X.to_sparse(),), {"scale": 2.0}, "input 'x': found layout torch.sparse_coo"),
        ((3,), {"scale": 2.0}, "input 'x': found a int, expected a tensor"),
        (([X],), {"scale": 2.0}, "inputs: found ([*], scale=*), expected the captured form, (*, scale=*)"),
        ((X,), {"scale": 3.0}, "input 'scale': found 3.0, expected 2.0, as captured"),
        ((X,), {"scale": X}, "expected 2.0, as captured"),
        ((X,), {}, "found no 'scale', expected the keyword arguments captured: scale"),
        ((X,), {"scale": 2.0, "x": X}, "found an argument 'x'"),
        ((X, X), {"scale": 2.0}, "found 2 positional arguments, expected 1"),
        (X, {"scale": 2.0}, "found args of type Tensor, expected a tuple"),
    ],
)
def test_other_inputs_than_those_captured_are_named(
    counting: Program, args: Any, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as raised:
        counting.run(args, kwargs)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert torch.equal(X, torch.ones(3, 4))


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Chooses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].relu()


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (Branches(), (X,), "Branches: torch.export: found GuardOnDataDependentSymNode"),
        (Chooses(), (X,), "Chooses: tensor 'index': found a size that depends on the data"),
        (nn.Linear(2, 2, device="meta"), (X,), "Linear: weight 'weight': found a tensor without values"),
        (nn.Linear(4, 2), (X.to("meta"),), "Linear: inputs: found a tensor without values"),
        (nn.Linear(3, 2), (X,), "Linear: torch.export: found RuntimeError"),
        (print, (X,), "builtin_function_or_method: model"),
        (
            nn.Linear(4, 2),
            X,
            "Linear: args and kwargs: found Tensor and NoneType, expected a tuple and a dict",
        ),
    ],
)
def test_what_cannot_be_captured_is_one_line(model: Any, args: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        load_program(model, args)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("model", "kind"), [(Branches(), ""), (Chooses(), "aten.index")])
def test_what_depends_on_the_data_is_told_with_its_line_and_what_can_be_done(model: Any, kind: str) -> None:
    code = type(model).forward.__code__
    line = f"{kind} at tests/runtime/test_runtime_program.py:{code.co_firstlineno + 1}".strip()
    for load in (load_program, StaticRuntime):
        with pytest.raises(InputError) as raised:
            load(model, (X,))
        message = str(raised.value)
        assert line in message.replace(f"{Path.cwd()}/", "")
        assert message.endswith("a plan of a recorded run (memplan observe FACTORY; observe_model)")
    with pytest.raises(InputError) as raised:
        StaticRuntime(Branches(), (X,), dynamic_shapes="x:0=rows[2:9]")
    assert "test_runtime_program.py:" in str(raised.value)
    assert "observe" in str(raised.value)
    with pytest.raises(InputError, match=r"with these inputs, or, if it runs eagerly, "):
        load_program(nn.Linear(3, 2), (X,))


def test_state_has_the_names_of_the_model(counting: Program) -> None:
    assert list(counting.named_state) == ["linear.weight", "linear.bias", "calls"]
    assert all(a is b for a, b in zip(counting.named_state.values(), counting.state, strict=True))
    step = load_step(nn.Linear(2, 1), (torch.ones(3, 2),), loss=torch.sum, optimizer="adam")
    assert list(step.named_state)[:2] == ["weight", "bias"]
    assert [name.rpartition(".")[2] for name in step.named_state][2:] == ["step", "exp_avg", "exp_avg_sq"] * 2


def test_programs_from_exported_programs_and_from_graphs() -> None:
    model, x = nn.Linear(3, 3), torch.rand(2, 3)
    program = program_from_exported(torch.export.export(model, (x,)), name="linear")
    assert same_bits(program.run((x,)), model(x))
    sizes = {"input": {0: torch.export.Dim("batch", min=2)}}
    with pytest.raises(InputError, match="expected a program captured with plain sizes"):
        program_from_exported(torch.export.export(model, (x,), dynamic_shapes=sizes))

    def function(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).relu().add_(1)

    weight = torch.rand(3, 3)
    module = make_fx(function)(weight, x)
    program = program_from_module(module, [weight, x], state=1)
    assert same_bits(program.run((x,)), function(weight, x))
    assert program.graph.constants == (program.placeholders[0],)
    with pytest.raises(InputError, match="found 1, 0 of them state, expected 2 placeholders"):
        program_from_module(module, [x])
    with pytest.raises(InputError, match="call_module, expected a flat graph"):
        program_from_module(torch.fx.symbolic_trace(nn.Sequential(model)), [x])


@each_form
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_training_step_does_what_torchs_own_optimizer_does(optimizer: str, functional: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    twin = copy.deepcopy(model)
    x = torch.rand(3, 4)
    program = load_step(model, (x,), optimizer=optimizer, functional=functional)
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    theirs = kinds[optimizer](twin.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        theirs.zero_grad()
        loss = twin(x).sum()
        loss.backward()
        theirs.step()
        return loss.detach()

    step()
    with torch.no_grad():
        for name, tensor in program.named_state.items():
            path, _, key = name.rpartition(".")
            known = dict(twin.named_parameters()) | dict(twin.named_buffers())
            tensor.copy_(known[name] if name in known else theirs.state[known[path]][key])
    # The second step, from what the first one left.
    assert same_bits(program.run((x,))[0], step())
    assert same_bits(model.state_dict(), twin.state_dict())
