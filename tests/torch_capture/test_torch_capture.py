"""Capturing live modules: exact graphs of small ones, the model left alone, no weights allocated, errors."""

from __future__ import annotations

import dataclasses
import logging
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from memplan_engine.errors import InputError
from memplan_engine.graph import Role, Source, storage_bytes
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.torch_factory import capture_factory
from memplan_engine.torch_capture.torch_graph import graph_from_exported
from memplan_engine.torch_capture.torch_source import portable_path, source_of
from tests.support.measured import allocations

HERE = Path(__file__)


class Block(nn.Module):
    """One of each: a view, an in-place op, several outputs of which one is unused, a mutated buffer, a
    constant that is lifted, and an output that is the input."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 6)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x):
        y = self.fc(x).relu_()
        left, _, right = y.split(2, dim=1)
        self.count.add_(1)
        return left + right + torch.tensor([1.0, 2.0]), x


def by_name(items):
    return {item.name: item for item in items}


def calls(function, **extra):
    """A module whose forward is `function`, with a linear layer to call."""

    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, *args, **kwargs):
            return function(self, *args, **kwargs)

    model = Calls()
    for name, value in extra.items():
        setattr(model, name, value)
    return model


def test_ops_storages_and_roles_of_a_small_module():
    graph = capture(Block(), (torch.ones(3, 4),))
    ops = by_name(graph.ops)
    assert list(ops) == [
        "linear", "relu_", "split", "add_", "add", "lift_fresh_copy", "detach_", "add_1",
    ]  # fmt: skip
    assert ops["relu_"].mutates == ("linear",)
    assert ops["split"].outputs == ("split.0", "split.1", "split.2")
    assert ops["add"].inputs == ("split.0", "split.2")
    assert ops["add_"].mutates == ("b_count",)
    homes = {tensor.name: tensor.storage for tensor in graph.tensors}
    assert {homes[name] for name in ("linear", "relu_", "split.0", "split.1", "split.2")} == {"linear"}
    assert homes["add_"] == "b_count"
    assert homes["detach_"] == "lift_fresh_copy"
    assert {(s.name, s.nbytes, s.role.value) for s in graph.storages} == {
        ("p_fc_weight", 96, "constant"),
        ("p_fc_bias", 24, "constant"),
        ("b_count", 8, "constant"),
        ("c_lifted_tensor_0", 8, "constant"),
        ("x", 48, "input"),
        ("linear", 72, "activation"),
        ("add", 24, "activation"),
        ("lift_fresh_copy", 8, "activation"),
        ("add_1", 24, "output"),
    }
    assert (graph.inputs, graph.outputs) == (("x",), ("add_1", "x"))
    assert by_name(graph.tensors)["split.1"].shape == (3, 2)
    assert by_name(graph.tensors)["split.1"].dtype == "float32"


def test_every_op_knows_its_kind_module_and_source_line():
    ops = by_name(capture(Block(), (torch.ones(3, 4),)).ops)
    assert (ops["linear"].kind, ops["linear"].module) == ("aten.linear", "fc")
    assert (ops["split"].kind, ops["split"].module) == ("aten.split", "")
    lines = HERE.read_text().splitlines()
    for name, text in (("linear", "y = self.fc(x).relu_()"), ("add_", "self.count.add_(1)")):
        line = next(i for i, code in enumerate(lines, 1) if code.strip() == text)
        assert ops[name].source == Source(portable_path(str(HERE)), line, text)


def test_functional_form_has_no_writes_and_returns_the_new_buffer():
    graph = capture(Block(), (torch.ones(3, 4),), functional=True)
    assert [op.mutates for op in graph.ops] == [()] * len(graph.ops)
    assert "aten.relu" in {op.kind for op in graph.ops}
    updated = next(op for op in graph.ops if "b_count" in op.inputs)
    assert graph.outputs[0] == updated.outputs[0]


def test_expanded_and_strided_tensors_count_their_storage():
    graph = capture(
        calls(lambda self, x: (self.fc(x)[:1].expand(50, 4), torch.empty(10, 4)[::2])), (torch.ones(3, 4),)
    )
    tensors, storages = by_name(graph.tensors), by_name(graph.storages)
    wide, thin = (tensors[name] for name in graph.outputs)
    assert (wide.nbytes, storages[wide.storage].nbytes) == (800, 48)
    assert (thin.nbytes, storages[thin.storage].nbytes) == (80, 160)


def test_batch_norm_writes_its_statistics_only_in_training():
    model, x = nn.BatchNorm1d(4), torch.ones(3, 4)
    (running,) = (op for op in capture(model, (x,)).ops if op.kind == "aten.batch_norm")
    assert running.mutates == ("b_running_mean", "b_running_var")
    assert all(op.mutates == () for op in capture(model.eval(), (x,)).ops)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tied_weights_stay_tied(device):
    first, second = nn.Embedding(10, 4, device=device), nn.Linear(4, 10, bias=False, device=device)
    second.weight = first.weight
    tied = capture(nn.Sequential(first, second), (torch.zeros(3, dtype=torch.long),))
    assert storage_bytes(tied, Role.CONSTANT) == 160
    second.weight = nn.Parameter(first.weight.detach().view(10, 4))
    shared = capture(nn.Sequential(first, second), (torch.zeros(3, dtype=torch.long),))
    assert storage_bytes(shared, Role.CONSTANT) == 160


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {name: (id(value), value.clone()) for name, value in model.state_dict(keep_vars=True).items()}
    modules = [vars(module).copy() for module in model.modules()]
    x = torch.ones(3, 4)
    capture(model, (x,))
    after = model.state_dict(keep_vars=True)
    assert {name: id(value) for name, value in after.items()} == {k: v[0] for k, v in before.items()}
    assert all(torch.equal(value, before[name][1]) for name, value in after.items())
    assert [vars(module) for module in model.modules()] == modules
    assert model.training
    assert torch.equal(x, torch.ones(3, 4))


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    rest: list


def test_inputs_may_be_nested_and_of_any_device():
    pair = Pair(torch.ones(2, 4, device="meta"), [torch.ones(2, 4)])
    graph = capture(
        calls(lambda self, pair, scale=None: self.fc(pair.first) + pair.rest[0] * scale["by"]),
        (pair,),
        {"scale": {"by": torch.ones(2, 1, device="meta")}},
    )
    assert [by_name(graph.tensors)[name].shape for name in graph.inputs] == [(2, 4), (2, 4), (2, 1)]
    assert [op.kind for op in graph.ops] == ["aten.linear", "aten.mul", "aten.add"]


def test_a_module_that_is_meta_gives_the_graph_of_the_real_one():
    model = calls(lambda self, x: self.fc(x) + self.shift + torch.arange(4), shift=torch.ones(4))
    real = capture(model, (torch.ones(2, 4),))
    model.shift = model.shift.to("meta")
    assert capture(model.to("meta"), (torch.ones(2, 4, device="meta"),)) == real


def test_no_tensor_among_the_inputs():
    graph = capture(calls(lambda self, n: self.fc(torch.ones(n, 4))), (3,))
    assert graph.inputs == ()
    assert by_name(graph.tensors)["linear"].shape == (3, 4)


def test_branches_are_laid_out_before_the_op_that_calls_them():
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.fc(x), lambda x: x.cos(), (x,))

    graph = capture(calls(forward), (torch.ones(2, 4),))
    inside = {op.name: op.within for op in graph.ops if op.within}
    assert inside == {"cond.true.linear": (("cond", "true"),), "cond.false.cos": (("cond", "false"),)}
    op = by_name(graph.ops)["cond"]
    assert set(op.inputs) == {"gt", graph.inputs[0], "p_fc_weight", "p_fc_bias", "cond.false.cos"}
    assert op.outputs == graph.outputs == ("cond.0",)
    assert by_name(graph.storages)["cond.0"].role is Role.OUTPUT
    homes = {tensor.name: tensor.storage for tensor in graph.tensors}
    assert homes["cond.true.linear"] == homes["cond.false.cos"] == "cond.0"


def test_vmap_is_made_functional():
    graph = capture(calls(lambda self, x: torch.vmap(lambda row: row.sin())(x)), (torch.ones(2, 4),))
    assert [op.kind for op in graph.ops] == ["aten.sin"]


def test_dynamic_shapes_take_the_values_of_the_example():
    model = calls(lambda self, x: torch.zeros(x.shape[0] * 2) + self.fc(x).sum())
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(
        model, (torch.ones(6, 4),), dynamic_shapes={"args": ({0: batch},)}, strict=False
    )
    graph = graph_from_exported(exported, "dynamic")
    assert by_name(graph.storages)["zeros"].nbytes == 48


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda self, x: x if x.sum() > 0 else self.fc(x), ["torch.export", "data-dependent"]),
        (lambda self, x, y: x, ["torch.export", "missing 1 required positional argument: 'y'"]),
    ],
)
def test_what_cannot_be_captured_is_one_line_naming_the_model(function, words):
    with pytest.raises(InputError) as caught:
        capture(calls(function), (torch.ones(2, 4),), name="Mine")
    message = str(caught.value)
    assert message.startswith("Mine: ")
    assert "\n" not in message
    assert all(word in message for word in words)


def test_sparse_inputs_and_things_that_are_no_module_are_refused():
    with pytest.raises(InputError, match=r"^Linear: tensor: found layout torch.sparse_coo"):
        capture(nn.Linear(2, 2), (torch.ones(2, 2).to_sparse(),))
    with pytest.raises(InputError, match="found a builtin_function_or_method"):
        capture(torch.sin, (torch.ones(2),))


def test_five_billion_parameters_are_captured_without_allocating_them():
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        config = transformers.LlamaConfig(
            num_hidden_layers=2, hidden_size=16384, num_attention_heads=128, intermediate_size=44032
        )
        model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.zeros(1, 128, dtype=torch.long)
    graphs = []
    made = allocations(lambda: graphs.append(capture(model, (ids,), {"use_cache": False})))
    # 2 layers of 4 × 16384² + 3 × 16384 × 44032 and two norms, the last norm, two tables of 32000 tokens.
    layer = 4 * 16384**2 + 3 * 16384 * 44032 + 2 * 16384
    assert storage_bytes(graphs[0], Role.CONSTANT) == 4 * (2 * layer + 16384 + 2 * 32000 * 16384 + 2 * 64)
    assert max(made, default=0) < 4096


def test_a_real_models_weights_are_not_copied():
    model, x = torch.nn.Linear(128, 128), torch.ones(1, 128)
    assert max(allocations(lambda: capture(model, (x,))), default=0) < model.weight.nbytes
    assert max(allocations(model.weight.clone)) == model.weight.nbytes


FACTORIES = """
import torch
from torch import nn

def args(): return nn.Linear(4, 2), (torch.ones(3, 4),)
def both(): return nn.Linear(4, 2), [], {"input": torch.ones(3, 4)}
def kwargs(): return nn.Linear(4, 2), {"input": torch.ones(3, 4)}
class Nested:
    make = staticmethod(args)
def needs_values():
    assert not torch.ones(1).is_meta, "values needed"
    return args()
def alone(): return nn.Linear(4, 2)
def broken(): raise RuntimeError("first line\\nsecond line")
def wrong_shape(): return nn.Linear(4, 2), (torch.ones(3, 5),)
text = "no function"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_factories.py").write_text(FACTORIES)
    (tmp_path / "my_broken_module.py").write_text("import no_such_package_anywhere")
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_factories", None)


@pytest.mark.parametrize("name", ["args", "both", "kwargs", "Nested.make", "needs_values"])
def test_factories_of_every_form(folder, name, caplog):
    path = list(sys.path)
    graph = capture_factory(f"my_factories:{name}")
    assert [op.kind for op in graph.ops] == ["aten.linear"]
    assert graph.name == name
    assert sys.path == path
    assert ("values needed" in caplog.text) == (name == "needs_values")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_factories", "found 'my_factories', expected package.module:function"),
        ("no_such_module_here:f", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("my_broken_module:f", "ModuleNotFoundError: No module named 'no_such_package_anywhere'"),
        ("my_factories:nothing", "module my_factories: found no 'nothing' in it"),
        ("my_factories:text", "found a str, expected a function without arguments"),
        ("my_factories:alone", "return value: found Linear, expected (model, args)"),
        ("my_factories:broken", "found RuntimeError: first line, expected a factory that runs"),
        ("my_factories:wrong_shape", "torch.export: found RuntimeError"),
    ],
)
def test_errors_name_the_factory(folder, spec, message):
    with pytest.raises(InputError) as caught:
        capture_factory(spec)
    assert str(caught.value).startswith(f"factory {spec}: ")
    assert message in str(caught.value)


def test_source_is_the_innermost_frame_outside_torch():
    trace = (
        'File "/x/site-packages/transformers/models/a.py", line 7, in forward\n    y = self.fc(x)\n'
        '  File "/x/site-packages/torch/nn/modules/linear.py", line 134, in forward\n    return F.linear()\n'
        '  File "<eval_with_key>.3", line 9, in forward\n    linear = 1'
    )
    assert source_of(trace) == Source("transformers/models/a.py", 7, "y = self.fc(x)")
    assert source_of('File "/x/dist-packages/torch/f.py", line 2, in g') == Source("torch/f.py", 2, "")
    assert source_of("") is None
    assert portable_path(str(Path.cwd() / "a" / "b.py")) == "a/b.py"
    assert portable_path("/elsewhere/b.py") == "/elsewhere/b.py"


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, True), ({"activation": torch.tanh}, True), ({"bias": False}, False)],
    ids=["fused", "its attention alone", "not"],
)
def test_encoder_layers_that_eager_runs_as_one_op_are_said(caplog, change, said):
    """Held against what eager mode dispatches."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **change).eval()
    x = torch.rand(2, 5, 16)
    with torch.no_grad(), OperatorNames() as seen:
        layer(x)
    fused = {"aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"} & set(seen.names)
    assert bool(fused) is said
    with caplog.at_level(logging.WARNING):
        capture(layer, (x,))
    assert any("one fused op" in record.getMessage() for record in caplog.records) is said
    caplog.clear()
    capture(layer.train(), (x,))
    assert not any("one fused op" in record.getMessage() for record in caplog.records)


class OperatorNames(TorchDispatchMode):
    """The names of the operators that are dispatched."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))
